"""A small Slack Web API on loopback that records calls and validates them as Slack does."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.bot.slack import schema_check
from tests.bot.slack.json_walk import list_texts
from tests.policies import TEAM
from tests.slack_emulator.blockkit import faults_of_blocks, faults_of_view


def iterate_buttons(element: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a button does and the button; of a menu, each of its entries as a button."""
    if element["type"] != "overflow":
        yield element["action_id"], element
    for option in element.get("options", ()):
        action, _, value = option["value"].partition(":")
        yield action, option | {"value": value, "menu": element["action_id"]}


@dataclass
class Posted:
    """One message as people see it. seen_by: the one person who sees an ephemeral one."""

    channel: str
    ts: str
    text: str
    blocks: list[dict[str, Any]]
    thread: str = ""
    seen_by: str = ""
    updates: int = 0

    @property
    def buttons(self) -> dict[str, dict[str, Any]]:
        """Its buttons, and what its menus offer, by what they do."""
        return {
            name: element
            for block in self.blocks
            if block["type"] == "actions"
            for element in block["elements"]
            for name, element in iterate_buttons(element)
        }

    @property
    def words(self) -> str:
        """All text of its blocks."""
        return " ".join(list_texts(self.blocks))


@dataclass
class WebApi:
    """channels: those that the bot is in. users: what users.info says beside the usual.

    refusals: answers to give instead, by method, one after the other.
    """

    url: str = ""
    channels: set[str] = field(default_factory=lambda: {"C0OPS"})
    users: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    refusals: dict[str, list[web.Response]] = field(default_factory=dict[str, list[web.Response]])
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])
    posted: list[Posted] = field(default_factory=list[Posted])
    faults: list[str] = field(default_factory=list[str])
    views: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    files: list[tuple[str, str]] = field(default_factory=list[Any])
    unfurled: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[Any])
    uploaded: list[str] = field(default_factory=list[str])
    triggers: set[str] = field(default_factory=set[str])
    slowly: float = 0.0
    # How Slack is away: "", "it answers 503" or "nobody is there".
    away: str = ""
    # How many of the next calls that begin so are taken, while the connection breaks before the
    # answer.
    unheard: int = 0
    unheard_of: str = "chat.post"
    may_look: bool = True
    _stamp: int = 0

    def refuse(self, method: str, error: str, *, status: int = 200, retry_after: int = 0) -> None:
        headers = {"Retry-After": str(retry_after)} if retry_after else {}
        answer = web.json_response({"ok": False, "error": error}, status=status, headers=headers)
        self.refusals.setdefault(method, []).append(answer)

    def seen_in(self, channel: str) -> list[Posted]:
        return [message for message in self.posted if message.channel == channel]

    def whispers(self, user: str) -> list[Posted]:
        return [message for message in self.posted if message.seen_by == user]

    @property
    def card(self) -> Posted:
        """The only card there is; a welcome is no card."""
        shown = [one for one in self.posted if one.text != "Welcome to Keyturn"]
        cards = [one for one in shown if not one.thread and not one.seen_by]
        assert len(cards) == 1, cards
        return cards[0]

    async def handle(self, request: web.Request) -> web.Response:
        if self.away == "it answers 503":
            return web.Response(status=503, text="<html>we are sorry</html>")
        if self.away and request.transport is not None:
            request.transport.close()
            return web.Response()
        method = request.match_info["method"]
        args = dict(request.query) | await _read_arguments(request)
        self.calls.append((method, args))
        await asyncio.sleep(self.slowly)
        if self.refusals.get(method):
            return self.refusals[method].pop(0)
        typed = request.content_type == "application/json"
        schema_check.violations.extend(schema_check.list_faults_of_call(method, args, typed=typed))
        answer = self._answer(method, args)
        if self.unheard and method.startswith(self.unheard_of) and request.transport is not None:
            self.unheard -= 1
            request.transport.close()
        return web.json_response({"ok": "error" not in answer, **answer})

    async def upload(self, request: web.Request) -> web.Response:
        self.uploaded.append(await request.text())
        return web.Response(text="OK")

    async def respond(self, request: web.Request) -> web.Response:
        """Replace the message of a click, as its response_url does."""
        body = await request.json()
        self.calls.append(("response_url", body))
        if self.refusals.get("response_url"):
            return self.refusals["response_url"].pop(0)
        place = {"channel": request.match_info["channel"], "ts": request.match_info["ts"]}
        answer = self._update(place | body) if body["replace_original"] else {"error": "no_text"}
        return web.Response(text="ok", status=404 if "error" in answer else 200)

    def _answer(self, method: str, args: Mapping[str, Any]) -> dict[str, Any]:
        match method:
            case "users.info":
                return {"user": _user(args["user"]) | self.users.get(args["user"], {})}
            case "conversations.open":
                return {"channel": {"id": f"D{args['users'][1:]}"}}
            case "chat.postMessage" | "chat.postEphemeral":
                return self._post(args)
            case "chat.update" | "chat.unfurl":
                return self._update(args) if method == "chat.update" else self._unfurl(args)
            case "conversations.history" | "conversations.replies":
                return self._look(args)
            case "files.getUploadURLExternal" | "files.completeUploadExternal":
                return self._file(method, args)
            case "views.open" | "views.update" | "views.publish":
                return self._view(method, args)
            case _:
                return {"error": "unknown_method"}

    def _post(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = args["channel"]
        if not channel.startswith("D") and channel not in self.channels:
            return {"error": "not_in_channel"}
        if self._judge(args):
            return {"error": "invalid_blocks"}
        self._stamp += 1
        message = Posted(
            channel,
            f"1700000001.{self._stamp:06d}",
            args["text"],
            args.get("blocks", []),
            thread=args.get("thread_ts", ""),
            seen_by=args.get("user", ""),
        )
        self.posted.append(message)
        return {"channel": channel, "ts": message.ts, "message_ts": message.ts}

    def _unfurl(self, args: Mapping[str, Any]) -> dict[str, Any]:
        self.unfurled.append((args["channel"], args["ts"], args["unfurls"]))
        for shown in args["unfurls"].values():
            self.faults += faults_of_blocks(shown["blocks"], surface="message")
        return {}

    def _file(self, method: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if method == "files.getUploadURLExternal":
            return {"upload_url": self.url.replace("/api/", "/upload/F1"), "file_id": "F1"}
        self.files.append((args["channel_id"], args["thread_ts"]))
        return {"files": args["files"]}

    def _look(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Show the newest first, two on a page, so that one look is several calls."""
        if not self.may_look:
            return {"error": "missing_scope"}
        there = [
            {"type": "message", "ts": one.ts, "text": one.text, "blocks": one.blocks}
            for one in reversed(self.seen_in(args["channel"]))
            if one.thread == args.get("ts", "") and not one.seen_by
        ]
        begin = int(args.get("cursor") or 0)
        more = str(begin + 2) if begin + 2 < len(there) else ""
        return {
            "messages": there[begin : begin + 2],
            "response_metadata": {"next_cursor": more},
        }

    def _update(self, args: Mapping[str, Any]) -> dict[str, Any]:
        for message in self.posted:
            if (message.channel, message.ts) == (args["channel"], args["ts"]):
                if self._judge(args):
                    return {"error": "invalid_blocks"}
                message.text, message.blocks = args["text"], args["blocks"]
                message.updates += 1
                return {"channel": message.channel, "ts": message.ts}
        return {"error": "message_not_found"}

    def _view(self, method: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Keep what a form or Home shows by now, by its id; a Home has its user's."""
        view: dict[str, Any] = args["view"]
        if faults := faults_of_view(view):
            self.faults += faults
            return {"error": "invalid_arguments"}
        if method == "views.open" and args["trigger_id"] in self.triggers:
            return {"error": "exchanged_trigger_id"}
        if method == "views.open":
            self.triggers.add(args["trigger_id"])
        self._stamp += method == "views.open"
        name = args.get("view_id") or args.get("user_id") or f"V{self._stamp:06d}"
        if method == "views.update" and name not in self.views:
            return {"error": "not_found"}
        self.views[name] = view
        return {"view": {"id": name, "hash": "1.a"}}

    def _judge(self, args: Mapping[str, Any]) -> bool:
        faults = faults_of_blocks(args.get("blocks", []), surface="message")
        self.faults += faults
        return bool(faults)


@asynccontextmanager
async def serve_web_api() -> AsyncGenerator[WebApi]:
    api = WebApi()
    app = web.Application()
    app.router.add_route("*", "/api/{method}", api.handle)
    app.router.add_post("/upload/{file}", api.upload)
    app.router.add_post("/actions/{channel}/{ts}", api.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}/api/"
    try:
        yield api
    finally:
        await runner.cleanup()


async def _read_arguments(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        return await request.json()
    return dict(await request.post())


def _user(user: str) -> dict[str, Any]:
    flags = ("deleted", "is_bot", "is_restricted", "is_ultra_restricted", "is_stranger")
    return {"id": user, "team_id": TEAM, "name": user.lower()} | dict.fromkeys(flags, False)
