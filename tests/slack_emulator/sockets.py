"""Socket Mode, from Slack's side: connections that the bot opens, and envelopes sent by them.

Source: https://docs.slack.dev/apis/events-api/using-socket-mode
"""

import asyncio
import json
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.slack_emulator.expiring_ids import Clock
from tests.slack_emulator.wire import Json, compact, record, text

MOST_CONNECTIONS = 10
_TICKET_SECONDS = 30
# What the bot answers to these is read; to the others only that it answers.
_ANSWERED = frozenset({"view_submission", "block_suggestion"})


class NoConnection(Exception):
    """The bot has none open, so nothing can be sent."""


@dataclass(frozen=True)
class Acknowledged:
    """What came back for an envelope, read as an answer over HTTP would be."""

    content: bytes
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"content-type": "application/json"}
    )
    status_code: int = 200


class Sockets:
    """The open connections. An envelope is acknowledged by the connection that it was sent by."""

    def __init__(self, app_id: str, now: Clock) -> None:
        self._app_id, self._now = app_id, now
        self._tickets: dict[str, float] = {}
        self._open: list[WebSocket] = []
        self._waiting: dict[tuple[WebSocket, str], asyncio.Future[Json]] = {}
        # Every envelope as it was sent.
        self.sent: list[Json] = []

    @property
    def connections(self) -> int:
        return len(self._open)

    def ticket(self) -> str:
        """Return a secret that opens one connection, soon."""
        now = self._now()
        self._tickets = {key: end for key, end in self._tickets.items() if end > now}
        key = secrets.token_urlsafe(24)
        self._tickets[key] = now + _TICKET_SECONDS
        return key

    async def connect(self, socket: WebSocket) -> None:
        """Greet a bot that comes with a ticket, and read its answers until it goes."""
        if self._tickets.pop(socket.query_params.get("ticket", ""), 0.0) < self._now():
            await socket.close(1008)
            return
        await socket.accept()
        if len(self._open) >= MOST_CONNECTIONS:
            await _leave(socket, "too_many_websockets")
            await socket.close()
            return
        self._open.append(socket)
        await socket.send_text(compact(self._hello()))
        try:
            while True:
                self._answered(socket, await socket.receive_text())
        except WebSocketDisconnect:
            return
        finally:
            self._forget(socket)

    async def deliver(self, body: bytes, headers: Mapping[str, str]) -> Acknowledged:
        """Send what would be posted as an envelope, and return what comes back for it."""
        if not self._open:
            raise NoConnection
        envelope = _envelope(body, headers)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        # Each connection in its turn, since any may get any envelope.
        socket = self._open.pop(0)
        self._open.append(socket)
        key = socket, envelope["envelope_id"]
        self._waiting[key] = answer
        self.sent.append(envelope)
        del self.sent[:-1000]
        try:
            await socket.send_text(compact(envelope))
            response = await answer
        finally:
            self._waiting.pop(key, None)
        return Acknowledged(
            compact(response).encode() if envelope["accepts_response_payload"] else b"{}"
        )

    async def renew(self, *reasons: str) -> None:
        """Ask for other connections in place of those that are open."""
        for socket in tuple(self._open):
            self._forget(socket)
            for reason in reasons or ("warning", "refresh_requested"):
                await _leave(socket, reason)

    async def say(self, words: str) -> None:
        """Send anything at all by every connection."""
        for socket in tuple(self._open):
            await socket.send_text(words)

    async def cut(self) -> None:
        """Close every connection without a word."""
        for socket in tuple(self._open):
            self._forget(socket)
            await socket.close(1001)

    def _hello(self) -> Json:
        return {
            "type": "hello",
            "num_connections": len(self._open),
            "debug_info": {
                "host": "emulator",
                "build_number": 1,
                "approximate_connection_time": 18060,
            },
            "connection_info": {"app_id": self._app_id},
        }

    def _answered(self, socket: WebSocket, response: str) -> None:
        try:
            answer = record(json.loads(response))
        except ValueError:
            return
        waiting = self._waiting.get((socket, text(answer.get("envelope_id"))))
        if waiting is not None and not waiting.done():
            waiting.set_result(record(answer.get("payload")))

    def _forget(self, socket: WebSocket) -> None:
        if socket in self._open:
            self._open.remove(socket)


async def _leave(socket: WebSocket, reason: str) -> None:
    message: Json = {"type": "disconnect", "reason": reason, "debug_info": {"host": "emulator"}}
    await socket.send_text(compact(message))


def _envelope(body: bytes, headers: Mapping[str, str]) -> Json:
    kind, payload = _content(body, headers.get("content-type", ""))
    message: Json = {
        "envelope_id": str(uuid.uuid4()),
        "payload": payload,
        "type": kind,
        "accepts_response_payload": kind == "slash_commands"
        or text(payload.get("type")) in _ANSWERED,
    }
    if kind == "events_api":
        message["retry_attempt"] = int(headers.get("x-slack-retry-num", "0"))
        message["retry_reason"] = headers.get("x-slack-retry-reason", "")
    return message


def _content(body: bytes, kind: str) -> tuple[str, Json]:
    """Return the kind of envelope for what would be posted, and what goes into it."""
    if "json" in kind:
        return "events_api", record(json.loads(body))
    fields: Json = dict(parse_qsl(body.decode(), keep_blank_values=True))
    if set(fields) == {"payload"}:
        return "interactive", record(json.loads(fields["payload"]))
    return "slash_commands", fields
