"""Limits on the size and duration of requests, and the security headers of responses."""

import asyncio

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.api.errors import build_problem

MAX_BYTES = 256 * 1024
MAX_SECONDS = 20

# The API is not for browsers, and no other site may read it: it sends no CORS headers.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_YEAR = 365 * 86400

_DETAILS = {
    408: f"The request took longer than {MAX_SECONDS} s to arrive.",
    413: f"The request is larger than {MAX_BYTES // 1024} KiB.",
}


class RequestGuard:
    """ASGI middleware that limits requests and adds security headers to responses.

    Args:
        secure: Whether clients reach the service over TLS.
    """

    def __init__(self, app: ASGIApp, *, secure: bool) -> None:
        self._app = app
        self._headers = _HEADERS | (
            {"Strict-Transport-Security": f"max-age={_YEAR}"} if secure else {}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        body = await _read_body(Headers(scope=scope), receive)
        if isinstance(body, int):
            refusal = build_problem(Request(scope), body, "limit-exceeded", _DETAILS[body])
            await refusal(scope, receive, send_with_headers)
            return
        # HEAD is allowed where GET is; the server omits the body.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await self._app(inner, _ReadBody(body, receive).receive, send_with_headers)


class _ReadBody:
    """Passes on a body that was already read."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body, self._receive, self._is_passed_on = body, receive, False

    async def receive(self) -> Message:
        if self._is_passed_on:
            return await self._receive()
        self._is_passed_on = True
        return {"type": "http.request", "body": self._body, "more_body": False}


async def _read_body(headers: Headers, receive: Receive) -> bytes | int:
    """Return the whole body, or the status of the limit that it exceeds."""
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()) or int(length) > MAX_BYTES:
        return 413
    body = bytearray()
    try:
        async with asyncio.timeout(MAX_SECONDS):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MAX_BYTES:
                    return 413
                if message["type"] != "http.request" or not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        return 408
