"""The guard before the API: how big and how slow a request may be, and what each answer says."""

import asyncio
from collections.abc import Callable

from fastapi import Request, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 256 * 1024
MOST_SECONDS = 20

# Nothing here is for browsers, and no other site may read it: there are no CORS headers at all.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_YEAR = 365 * 86400

Refuse = Callable[[Request, int], Response]


class Guard:
    """ASGI middleware. secure: whether we are reached over TLS. refuse: tells what is too much."""

    def __init__(self, app: ASGIApp, *, secure: bool, refuse: Refuse) -> None:
        self._app, self._refuse = app, refuse
        self._headers = _HEADERS | (
            {"Strict-Transport-Security": f"max-age={_YEAR}"} if secure else {}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        body = await _body(Headers(scope=scope), receive)
        if isinstance(body, int):
            await self._refuse(Request(scope), body)(scope, receive, dressed)
            return
        # Whoever may GET something may look at its headers; the server leaves out the body.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await self._app(inner, _Whole(body, receive).receive, dressed)


class _Whole:
    """Hands on a body that was read already."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body, self._receive, self._given = body, receive, False

    async def receive(self) -> Message:
        if self._given:
            return await self._receive()
        self._given = True
        return {"type": "http.request", "body": self._body, "more_body": False}


async def _body(headers: Headers, receive: Receive) -> bytes | int:
    """Read the whole body; or return the status that says what is too much."""
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()) or int(length) > MOST_BYTES:
        return 413
    found = bytearray()
    try:
        async with asyncio.timeout(MOST_SECONDS):
            while True:
                message = await receive()
                found += message.get("body", b"")
                if len(found) > MOST_BYTES:
                    return 413
                if message["type"] != "http.request" or not message.get("more_body"):
                    return bytes(found)
    except TimeoutError:
        return 408
