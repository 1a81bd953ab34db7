"""The way from Slack to the bot: signed as Slack signs, and given three seconds."""

import asyncio
import hashlib
import hmac
import json
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlencode

import httpx2
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.slack_emulator.expiring_ids import Clock
from tests.slack_emulator.faults import Faults
from tests.slack_emulator.sockets import NoConnection, Sockets
from tests.slack_emulator.wire import Json, compact, record

ACK_SECONDS = 3.0


class Answer(Protocol):
    """What the bot answered; `httpx2.Response` is one."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def content(self) -> bytes: ...


Deliver = Callable[[bytes, Mapping[str, str]], Awaitable[Answer]]


class NotTaken(Exception):
    """The bot did not take a delivery: `operation_timeout`, or `dispatch_failed` with a status."""

    def __init__(self, error: str, status: int = 0) -> None:
        super().__init__(error)
        self.error = error
        self.status = status


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return what Slack puts into X-Slack-Signature."""
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def to_app(app: ASGIApp, path: str = "/slack/events") -> Deliver:
    """Return a deliverer that posts to an ASGI app of this process, without a socket."""

    async def deliver(body: bytes, headers: Mapping[str, str]) -> Answer:
        transport = httpx2.ASGITransport(app=answered_first(app), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post(path, content=body, headers=dict(headers))

    return deliver


def to_url(url: str) -> Deliver:
    """Return a deliverer that posts to a URL, such as `http://127.0.0.1:8080/slack/events`."""
    # Each client would read the certificates of all authorities anew.
    trust = ssl.create_default_context()

    async def deliver(body: bytes, headers: Mapping[str, str]) -> Answer:
        async with httpx2.AsyncClient(timeout=60.0, trust_env=False, verify=trust) as client:
            return await client.post(url, content=body, headers=dict(headers))

    return deliver


def to_sockets(sockets: Sockets) -> Deliver:
    """Return a deliverer by the connections that the bot has opened."""

    async def deliver(body: bytes, headers: Mapping[str, str]) -> Answer:
        try:
            return await sockets.deliver(body, headers)
        except NoConnection:
            raise NotTaken("dispatch_failed") from None

    return deliver


_running: set[asyncio.Task[None]] = set()


def answered_first(app: ASGIApp) -> ASGIApp:
    """Return the app so that its answer counts once it is complete, as it does over a socket.

    Without this, what an app does after its answer (background tasks) would delay the answer.
    """

    async def until_answered(scope: Scope, receive: Receive, send: Send) -> None:
        answered = asyncio.Event()

        async def tell(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered.set()

        async def run() -> None:
            try:
                await app(scope, receive, tell)
            finally:
                answered.set()

        task = asyncio.create_task(run())
        _running.add(task)
        task.add_done_callback(_running.discard)
        await answered.wait()
        if task.done():
            await task

    return until_answered


class Courier:
    """Signs payloads and hands them to the bot."""

    def __init__(self, secret: str, deliver: Deliver, faults: Faults, now: Clock) -> None:
        self._secret = secret
        self._deliver = deliver
        self._faults = faults
        self._now = now
        self._tasks: set[asyncio.Task[Any]] = set()
        self.ack_seconds = ACK_SECONDS
        # When Slack delivers an event again that was not taken: at once, after 1 and 5 minutes.
        self.retry_after: Sequence[float] = (0.0, 60.0, 300.0)

    async def command(self, form: Mapping[str, str]) -> Json | str:
        """Deliver a slash command and return what the acknowledgement says."""
        return await self._hand_over(urlencode(form).encode())

    async def interaction(self, payload: Json) -> Json | str:
        """Deliver an interaction and return what the acknowledgement says."""
        return await self._hand_over(urlencode({"payload": compact(payload)}).encode())

    def event(self, payload: Json) -> None:
        """Deliver an event without waiting for it, and again if it is not taken."""
        self.soon(self._event(payload))

    def soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Wait until everything under way has been delivered."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _event(self, payload: Json) -> None:
        body = compact(payload).encode()
        extra: dict[str, str] = {}
        for attempt, pause in enumerate((*self.retry_after, None), start=1):
            reason = await self._try_event(body, extra)
            if not reason and attempt > self._faults.retries:
                return
            if pause is None:
                return
            await asyncio.sleep(pause if reason else 0)
            retried = {"x-slack-retry-num": str(attempt)}
            extra = {**retried, "x-slack-retry-reason": reason or "http_timeout"}

    async def _try_event(self, body: bytes, extra: Mapping[str, str]) -> str:
        """Return why Slack would deliver an event again, or nothing."""
        try:
            answer = await self._in_time(body, "application/json", extra)
        except NotTaken:
            return "http_timeout"
        refused = answer.headers.get("x-slack-no-retry") == "1"
        return "" if 200 <= answer.status_code < 300 or refused else "http_error"

    async def _hand_over(self, body: bytes) -> Json | str:
        kind = "application/x-www-form-urlencoded"
        if self._faults.twice:
            self.soon(self._again(body, kind))
        answer = await self._in_time(body, kind, {})
        if not 200 <= answer.status_code < 300:
            raise NotTaken("dispatch_failed", answer.status_code)
        return _parse_body(answer)

    async def _again(self, body: bytes, kind: str) -> None:
        try:
            await self._in_time(body, kind, {})
        except NotTaken:
            return

    async def _in_time(self, body: bytes, kind: str, extra: Mapping[str, str]) -> Answer:
        """Return the bot's answer, or raise NotTaken after three seconds; the bot works on."""
        task = asyncio.ensure_future(self._signed(body, kind, extra))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        done, _ = await asyncio.wait({task}, timeout=self.ack_seconds)
        if not done:
            task.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise NotTaken("operation_timeout")
        try:
            return task.result()
        except httpx2.HTTPError as error:
            raise NotTaken("dispatch_unknown_error") from error

    async def _signed(self, body: bytes, kind: str, extra: Mapping[str, str]) -> Answer:
        await asyncio.sleep(self._faults.latency)
        timestamp = str(int(self._now()))
        headers = {
            "content-type": kind,
            "user-agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
            "x-slack-request-timestamp": timestamp,
            "x-slack-signature": signature(self._secret, timestamp, body),
            **extra,
        }
        return await self._deliver(body, headers)


def _parse_body(answer: Answer) -> Json | str:
    """Return the body of an acknowledgement: JSON, or plain text, which may be empty."""
    words = answer.content.decode("utf-8", "replace")
    if "json" not in answer.headers.get("content-type", ""):
        return words
    try:
        return record(json.loads(words or "{}"))
    except ValueError:
        return words
