"""The emulator as the builder mounts it: a workspace, its Web API and its pages in one app."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from tests.slack_emulator.calls import CallContext
from tests.slack_emulator.deliveries import Courier, Deliver, to_sockets
from tests.slack_emulator.directory import EmulatedChannel, EmulatedPerson, Installation
from tests.slack_emulator.expiring_ids import ResponseUrls, Triggers
from tests.slack_emulator.interactions import Interactions
from tests.slack_emulator.login import Guard, Mint, SignIn
from tests.slack_emulator.methods import WebApi
from tests.slack_emulator.pages import Pages
from tests.slack_emulator.sockets import Sockets
from tests.slack_emulator.typed_input import TypedInput
from tests.slack_emulator.uploads import Uploads
from tests.slack_emulator.views import Views
from tests.slack_emulator.workspace import Workspace


class Emulator:
    """A Slack-shaped server with a chat page.

    deliver: hands signed payloads to the bot (`deliveries.to_app` or `deliveries.to_url`); None
        for Socket Mode, which the bot opens with `emulator.app_token`.
    url: where the emulator is mounted, without a slash at its end; may be set later, once the
        port is known. The bot's client gets `base_url=emulator.api_url` and `emulator.bot_token`.
    mint: makes the secrets of sign-in links and sessions.
    """

    def __init__(
        self,
        *,
        people: Sequence[EmulatedPerson],
        channels: Sequence[EmulatedChannel],
        signing_secret: str,
        deliver: Deliver | None,
        installation: Installation | None = None,
        url: str = "http://127.0.0.1:8080/emulator",
        mint: Mint = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self.url = url
        self.bot_token = f"xoxb-emulator-{secrets.token_urlsafe(24)}"
        self.app_token = f"xapp-emulator-{secrets.token_urlsafe(24)}"
        self.workspace = Workspace(people, channels, app=installation)
        self.views = Views(self.workspace.changes)
        now = self.workspace.now
        self.sockets = Sockets(self.workspace.app.app_id, now)
        way = deliver or to_sockets(self.sockets)
        self.courier = Courier(signing_secret, way, self.workspace.faults, now)
        self._sign_in = SignIn(mint)
        triggers, hooks, uploads = Triggers(now), ResponseUrls(now), Uploads()
        self.interactions = Interactions(
            self.workspace,
            self.views,
            self.courier,
            triggers=triggers,
            hooks=hooks,
            hook_url=lambda key: f"{self.url}/hooks/{key}",
        )
        self.typed_input = TypedInput(self.workspace, self.interactions, self.courier, triggers)
        context = CallContext(
            self.workspace, self.views, triggers, uploads, self.sockets, lambda: self.url
        )
        self.web_api = WebApi(context, hooks, bot_token=self.bot_token, app_token=self.app_token)
        self._pages = Pages(
            self.workspace,
            self.views,
            self.interactions,
            self.typed_input,
            uploads=uploads,
            sign_in=self._sign_in,
        )
        self.app = self._built()

    @property
    def api_url(self) -> str:
        """What the bot's `AsyncWebClient` takes as `base_url`."""
        return f"{self.url}/api/"

    def sign_in_link(self, base_url: str = "") -> str:
        """Return a link that opens the emulator once. `base_url` is where it is mounted."""
        return f"{(base_url or self.url).rstrip('/')}/sign-in?ticket={self._sign_in.ticket()}"

    def _built(self) -> Starlette:
        pages, guarded = self._pages, self._pages.guarded
        static = StaticFiles(directory=Path(__file__).parent / "static")
        both = ["GET", "POST"]
        return Starlette(
            middleware=[Middleware(Guard)],
            routes=[
                Route("/api/{method}", self.web_api.api, methods=both),
                Route("/hooks/{key}", self.web_api.hook, methods=["POST"]),
                Route("/upload/{key}", self.web_api.upload, methods=["POST"]),
                WebSocketRoute("/link", self.sockets.connect),
                Mount("/static", static),
                Route("/sign-in", pages.sign_in),
                Route("/", guarded(pages.start)),
                Route("/events", guarded(pages.events)),
                Route("/files/{file}", guarded(pages.file)),
                Route("/m/{channel}/{ts}", guarded(pages.permalink)),
                Route("/as/{user}/home", guarded(pages.home)),
                Route("/as/{user}/c/{channel}", guarded(pages.channel)),
                Route("/as/{user}/say", guarded(pages.say), methods=["POST"]),
                Route("/as/{user}/act", guarded(pages.act), methods=["POST"]),
                Route("/as/{user}/suggest", guarded(pages.suggest), methods=["POST"]),
                Route("/as/{user}/shortcut", guarded(pages.shortcut), methods=["POST"]),
                Route("/as/{user}/faults", guarded(pages.set_faults), methods=["POST"]),
            ],
        )
