"""The emulator's pages, and what their forms do."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from tests.slack_emulator.controls import label
from tests.slack_emulator.deliveries import NotTaken
from tests.slack_emulator.form_values import find
from tests.slack_emulator.interactions import Interactions
from tests.slack_emulator.login import COOKIE, SignIn, came_from_our_page
from tests.slack_emulator.messages import Message
from tests.slack_emulator.places import MessagePlace, Place, ViewPlace
from tests.slack_emulator.screen import Screen
from tests.slack_emulator.typed_input import TypedInput
from tests.slack_emulator.uploads import Uploads
from tests.slack_emulator.views import Views
from tests.slack_emulator.wire import Fields, SlackError, record, text, whole
from tests.slack_emulator.workspace import Workspace

_HERE = Path(__file__).parent

# A stream ends after a while and the page asks for a new one: none keeps the server from ending.
_STREAM_SECONDS = 20.0

HOME = "home"

Handler = Callable[[Request], Awaitable[Response]]

_WORDS = {
    "account_inactive": "This account is deactivated: nothing can be done as this person.",
    "message_not_found": "That message is gone.",
    "not_found": "That form is no longer open.",
    "action_not_found": "That button or choice is gone: the message has changed.",
}


@dataclass(frozen=True)
class Here:
    """Where a person is: a channel's id or `home`, and the thread that is open beside it."""

    user: str
    at: str
    thread: str = ""

    def url(self, base: str) -> str:
        path = f"{base}/as/{quote(self.user)}/" + (
            HOME if self.at == HOME else f"c/{quote(self.at)}"
        )
        return path + (f"?{urlencode({'thread': self.thread})}" if self.thread else "")


@cache
def _load_templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


class Pages:
    """Serves pages to whoever signed in, as any person of the workspace."""

    def __init__(
        self,
        workspace: Workspace,
        views: Views,
        interactions: Interactions,
        typed_input: TypedInput,
        *,
        uploads: Uploads,
        sign_in: SignIn,
    ) -> None:
        self._workspace = workspace
        self._views = views
        self._interactions = interactions
        self._typed_input = typed_input
        self._uploads = uploads
        self._sign_in = sign_in

    # Signing in

    async def sign_in(self, request: Request) -> Response:
        """Trade a one-time link for a cookie."""
        session = self._sign_in.redeem(request.query_params.get("ticket", ""))
        if session is None:
            return self._signed_out(request)
        base = _base(request)
        response = RedirectResponse(f"{base}/", 303)
        response.set_cookie(COOKIE, session, path=base or "/", httponly=True, samesite="strict")
        return response

    def _signed_out(self, request: Request) -> Response:
        return self._html("sign_in.html", status=403, base=_base(request))

    def guarded(self, handler: Handler) -> Handler:
        """Return the handler for signed-in people only, and for our own pages' forms only."""

        async def checked(request: Request) -> Response:
            if not self._sign_in.knows(request):
                return self._signed_out(request)
            if request.method != "GET" and not came_from_our_page(request):
                return self._problem(
                    request, "This form was not sent from the emulator's own page.", 403
                )
            try:
                return await handler(request)
            except SlackError as error:
                return self._problem(request, _WORDS.get(error.error, error.error), 404)

        return checked

    # Looking

    async def start(self, request: Request) -> Response:
        user = next(iter(self._workspace.people))
        return RedirectResponse(self._first(user).url(_base(request)), 303)

    def _first(self, user: str) -> Here:
        channels = self._workspace.channels_of(user)
        return Here(user, channels[0].id if channels else HOME)

    async def permalink(self, request: Request) -> Response:
        channel, ts = request.path_params["channel"], request.path_params["ts"]
        message = self._workspace.message(channel, ts)
        user = next(iter(self._workspace.people))
        thread = message.thread_ts or message.ts
        return RedirectResponse(Here(user, channel, thread).url(_base(request)), 303)

    async def channel(self, request: Request) -> Response:
        here = Here(
            request.path_params["user"],
            request.path_params["channel"],
            request.query_params.get("thread", ""),
        )
        channel = self._workspace.channel(here.at)
        if channel not in self._workspace.channels_of(here.user):
            raise SlackError("channel_not_found")
        if channel.kind == "im":
            self._opened(request, here, tab="messages")
        return self._page(request, here)

    async def home(self, request: Request) -> Response:
        here = Here(request.path_params["user"], HOME)
        self._workspace.person(here.user)
        self._opened(request, here, tab="home")
        return self._page(request, here)

    def _opened(self, request: Request, here: Here, *, tab: str) -> None:
        """Tell the bot that its Home was opened, unless a page only brings itself up to date."""
        if "x-refresh" in request.headers or here.user in self._workspace.deactivated:
            return
        direct = self._workspace.open_direct([here.user])
        self._interactions.home_opened(here.user, direct.id, tab=tab)

    def _page(self, request: Request, here: Here) -> Response:
        sequence = self._workspace.changes.sequence
        person = self._workspace.person(here.user)
        screen = Screen(self._workspace, self._views, self._interactions, person)
        channel = None if here.at == HOME else self._workspace.channel(here.at)
        lines = screen.log(channel) if channel else []
        thread = screen.thread(channel, here.thread) if channel and here.thread else []
        html = self._html(
            "page.html",
            base=_base(request),
            here=here,
            screen=screen,
            sequence=sequence,
            channel=channel,
            lines=lines,
            thread=thread,
            home=screen.home() if channel is None else None,
            modal=screen.modal(),
            workspace=self._workspace,
            app=self._workspace.app,
            faults=self._workspace.faults,
        )
        if channel is not None:
            self._workspace.mark_read(channel.id, here.user)
        return html

    async def file(self, request: Request) -> Response:
        """Hand a file out as a download, never as a page."""
        file = self._uploads.file(request.path_params["file"])
        disposition = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
        return Response(
            file.content,
            media_type="application/octet-stream",
            headers={"content-disposition": disposition},
        )

    async def events(self, request: Request) -> Response:
        """Stream the sequence of changes, one event for each that the page has not seen."""
        after = whole(request.headers.get("last-event-id") or request.query_params.get("after"))
        return StreamingResponse(self._stream(after), media_type="text/event-stream")

    async def _stream(self, after: int) -> AsyncIterator[str]:
        yield "retry: 300\n\n"
        end = time.monotonic() + _STREAM_SECONDS
        while (left := end - time.monotonic()) > 0:
            now = await self._workspace.changes.wait_beyond(after, within=left)
            if now > after:
                yield f"id: {now}\ndata: {now}\n\n"
            after = now

    # Acting

    async def say(self, request: Request) -> Response:
        fields = await _fields(request)
        here = _here(request, fields)
        typed, reply = _one(fields, "text"), _one(fields, "reply")
        await self._try(here, self._typed_input.say(here.user, here.at, typed, thread_ts=reply))
        return _back(request, here)

    async def act(self, request: Request) -> Response:
        """Do what a form's button says: press, find an option, submit, back or close."""
        fields = await _fields(request)
        here = _here(request, fields)
        question = self._question(here.user, fields)
        if question is not None:
            return self._html(
                "confirm.html", base=_base(request), here=here, question=question, fields=fields
            )
        await self._try(here, self._act(here.user, fields))
        return _back(request, here)

    async def _act(self, user: str, fields: Fields) -> None:
        place = self._place(user, fields)
        if _one(fields, "press"):
            await self._interactions.press(user, place, fields)
        elif _one(fields, "find"):
            where = _one(fields, "find")
            self._interactions.remember(user, place, fields)
            await self._interactions.find(user, place, where, _one(fields, f"q/{where}"))
        elif isinstance(place, ViewPlace):
            await self._finish(user, place, fields)

    async def _finish(self, user: str, place: ViewPlace, fields: Fields) -> None:
        done = _one(fields, "do")
        if done == "submit":
            await self._interactions.submit(user, place.view, fields)
        elif done in ("back", "close"):
            await self._interactions.close(user, place.view, everything=done == "close")

    def _question(self, user: str, fields: Fields) -> dict[str, str] | None:
        """Return what must be asked before a button is pressed, unless it was."""
        pressed = _one(fields, "press")
        if not pressed or _one(fields, "confirmed"):
            return None
        try:
            where = "/".join(pressed.split("/")[:2])
            _, element = find(self._place(user, fields).blocks, where)
        except SlackError:
            return None
        confirm = record(element.get("confirm"))
        names = ("title", "text", "confirm", "deny")
        return {name: label(confirm.get(name)) for name in names} if confirm else None

    async def suggest(self, request: Request) -> Response:
        """Return what an external select offers, for the page's script."""
        fields = await _fields(request)
        user = request.path_params["user"]
        place = self._place(user, fields)
        where = _one(fields, "where")
        options = await self._interactions.suggest(user, place, where, _one(fields, "typed"))
        suggestions = [
            {"value": text(o.get("value")), "text": label(o.get("text"))} for o in options
        ]
        return JSONResponse({"options": suggestions})

    async def shortcut(self, request: Request) -> Response:
        fields = await _fields(request)
        here = _here(request, fields)
        callback = _one(fields, "shortcut")
        if _one(fields, "ts"):
            place = MessagePlace(self._seen_message(here.user, fields))
            await self._try(here, self._interactions.message_shortcut(here.user, callback, place))
        else:
            await self._try(here, self._interactions.shortcut(here.user, callback))
        return _back(request, here)

    async def _try(self, here: Here, work: Awaitable[None]) -> None:
        """Do something, and tell the person in the channel what went wrong with it."""
        try:
            await work
        except SlackError as error:
            self._tell(here, _WORDS.get(error.error, f"That did not work: {error.error}"))
        except NotTaken as trouble:
            self._tell(here, f"{self._workspace.app.bot_display} did not answer: {trouble.error}")

    def _tell(self, here: Here, words: str) -> None:
        at = here.at if here.at != HOME else self._workspace.open_direct([here.user]).id
        self._workspace.notice(at, here.user, words, thread_ts=here.thread)

    def _place(self, user: str, fields: Fields) -> Place:
        if not _one(fields, "view"):
            return MessagePlace(self._seen_message(user, fields))
        view = self._views.find(view_id=_one(fields, "view"))
        if view.user != user:
            raise SlackError("not_found")
        return ViewPlace(view)

    def _seen_message(self, user: str, fields: Fields) -> Message:
        message = self._workspace.message(_one(fields, "channel"), _one(fields, "ts"))
        if not message.seen_by(user):
            raise SlackError("message_not_found")
        return message

    async def set_faults(self, request: Request) -> Response:
        fields = await _fields(request)
        here = _here(request, fields)
        do, _, target = _one(fields, "do").partition(":")
        if do == "set":
            self._set_faults(fields)
        elif do in ("invite", "remove"):
            self._workspace.set_bot_inside(target, inside=do == "invite")
        elif do in ("archive", "unarchive"):
            self._workspace.set_archived(target, archived=do == "archive")
        elif do in ("activate", "deactivate"):
            self._interactions.set_active(target, active=do == "activate")
        return _back(request, here)

    def _set_faults(self, fields: Fields) -> None:
        faults = self._workspace.faults
        faults.latency = min(max(whole(_one(fields, "latency")), 0), 60)
        faults.calls_to_limit = max(whole(_one(fields, "calls_to_limit")), 0)
        faults.retry_after = max(whole(_one(fields, "retry_after"), 1), 1)
        faults.retries = min(max(whole(_one(fields, "retries")), 0), 3)
        faults.twice = bool(_one(fields, "twice"))
        self._workspace.changes.advance()

    # Answers

    def _html(self, name: str, *, status: int = 200, **shown: object) -> Response:
        return HTMLResponse(_load_templates().get_template(name).render(**shown), status)

    def _problem(self, request: Request, words: str, status: int) -> Response:
        return self._html("problem.html", status=status, base=_base(request), words=words)


def _base(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _one(fields: Fields, name: str) -> str:
    return "".join(fields.get(name, ())[:1])


def _here(request: Request, fields: Fields) -> Here:
    user = request.path_params["user"]
    return Here(user, _one(fields, "at") or HOME, _one(fields, "thread"))


def _back(request: Request, here: Here) -> Response:
    return RedirectResponse(here.url(_base(request)), 303)


async def _fields(request: Request) -> dict[str, list[str]]:
    async with request.form() as form:
        fields: dict[str, list[str]] = {}
        for name, value in form.multi_items():
            if isinstance(value, str):
                fields.setdefault(name, []).append(value)
        return fields
