"""The console as the builder mounts it: a workspace, its Web API and its pages in one app."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from bot.console.calls import Desk
from bot.console.deliveries import Courier, Deliver, to_sockets
from bot.console.directory import ConsoleChannel, ConsolePerson, Installation
from bot.console.interactions import Interactions
from bot.console.login import Guard, Mint, SignIn
from bot.console.methods import WebApi
from bot.console.pages import Pages
from bot.console.sockets import Sockets
from bot.console.speech import Speech
from bot.console.tickets import ResponseUrls, Triggers
from bot.console.uploads import Uploads
from bot.console.views import Views
from bot.console.workspace import Workspace


class Console:
    """A Slack-shaped server with a chat page.

    deliver: hands signed payloads to the bot (`deliveries.to_app` or `deliveries.to_url`); None
        for Socket Mode, which the bot opens with `console.app_token`.
    url: where the console is mounted, without a slash at its end; may be set later, once the
        port is known. The bot's client gets `base_url=console.api_url` and `console.bot_token`.
    mint: makes the secrets of sign-in links and sessions.
    """

    def __init__(
        self,
        *,
        people: Sequence[ConsolePerson],
        channels: Sequence[ConsoleChannel],
        signing_secret: str,
        deliver: Deliver | None,
        installation: Installation | None = None,
        url: str = "http://127.0.0.1:8080/console",
        mint: Mint = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self.url = url
        self.bot_token = f"xoxb-console-{secrets.token_urlsafe(24)}"
        self.app_token = f"xapp-console-{secrets.token_urlsafe(24)}"
        self.workspace = Workspace(people, channels, app=installation)
        self.views = Views(self.workspace.pulse)
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
        self.speech = Speech(self.workspace, self.interactions, self.courier, triggers)
        desk = Desk(self.workspace, self.views, triggers, uploads, self.sockets, lambda: self.url)
        self.web_api = WebApi(desk, hooks, bot_token=self.bot_token, app_token=self.app_token)
        self._pages = Pages(
            self.workspace,
            self.views,
            self.interactions,
            self.speech,
            uploads=uploads,
            sign_in=self._sign_in,
        )
        self.app = self._built()

    @property
    def api_url(self) -> str:
        """What the bot's `AsyncWebClient` takes as `base_url`."""
        return f"{self.url}/api/"

    def sign_in_link(self, base_url: str = "") -> str:
        """Return a link that opens the console once. `base_url` is where it is mounted."""
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
