"""Requests to an ASGI app as raw bytes, which no HTTP client would send."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

from tests.bot.slack.payloads import Headers


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body or b"{}")

    @property
    def text(self) -> str:
        return str(self.json.get("text", ""))


async def post(
    app: ASGIApp, raw: bytes | Sequence[bytes], headers: Headers, *, method: str = "POST"
) -> Answer:
    """Send a request, in several chunks if they are given, and return what came back."""
    chunks = [raw] if isinstance(raw, bytes) else list(raw)
    status, content = 0, b""

    async def receive() -> Message:
        if not chunks:
            return {"type": "http.disconnect"}
        body = chunks.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(chunks)}

    async def send(message: Message) -> None:
        nonlocal status, content
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            content += message.get("body", b"")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "https",
        "path": "/slack/events",
        "raw_path": b"/slack/events",
        "root_path": "",
        "query_string": b"",
        "headers": list(headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 443),
    }
    await app(scope, receive, send)
    return Answer(status, content)
