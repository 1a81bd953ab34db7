"""The guard before every page: where a request may come from, how big it is, what answers say."""

import asyncio
from collections.abc import Callable

from fastapi import HTTPException, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 256 * 1024
MAX_BODY_SECONDS = 20

_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers would then send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "X-Frame-Options": "DENY",
}
_SECONDS_PER_YEAR = 365 * 86400


class RequestGuard:
    """ASGI middleware. origin: ours. refuse: draws the page for a status and its words."""

    def __init__(
        self, app: ASGIApp, *, origin: str, build_refusal: Callable[[int, str], Response]
    ) -> None:
        self._app, self._origin, self._build_refusal = app, origin, build_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._get_refusal(scope)
        if answer is not None:
            await answer(scope, receive, self._add_headers_to_answer(scope, send))
            return
        # Whoever may GET a page may look at its headers; the server leaves out the body.
        head = scope["method"] == "HEAD"
        inner = {**scope, "method": "GET", "head": True} if head else scope
        await self._app(
            inner, _LimitedBody(receive).receive_message, self._add_headers_to_answer(scope, send)
        )

    def _get_refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in {"GET", "HEAD"} and not is_same_origin(headers, self._origin):
            return self._build_refusal(
                403,
                f"This was not sent from a page of Keyturn. Open {self._origin} and do it there.",
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return self._build_refusal(413, TOO_LARGE)
        return None

    def _add_headers_to_answer(self, scope: Scope, send: Send) -> Send:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                set_security_headers(
                    MutableHeaders(scope=message), scope["path"], origin=self._origin
                )
            await send(message)

        return answer


TOO_LARGE = f"That is more than {MAX_BODY_BYTES // 1024} KiB. Say it in fewer words."


def is_same_origin(headers: Headers, origin: str) -> bool:
    """Say whether a browser vouches that one of our own pages sent this.

    A browser sends Origin with every POST, and Sec-Fetch-Site unless it is old; what sends
    neither is no browser, and has no business with pages.
    """
    said, site = headers.get("origin"), headers.get("sec-fetch-site")
    if said is None and site is None:
        return False
    return said in {None, origin} and site in {None, "same-origin"}


def set_security_headers(headers: MutableHeaders, path: str, *, origin: str) -> None:
    """Put the security headers on an answer."""
    headers.update(_SECURITY_HEADERS)
    if origin.startswith("https:"):
        headers["Strict-Transport-Security"] = f"max-age={_SECONDS_PER_YEAR}"
    if not path.startswith("/static/"):
        headers["Cache-Control"] = "no-store"


class _LimitedBody:
    """Hands a body on, up to the limits, also where nobody announced its length."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received_bytes, self._has_more = 0, True
        self._deadline = asyncio.get_running_loop().time() + MAX_BODY_SECONDS

    async def receive_message(self) -> Message:
        if not self._has_more:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "The request came in too slowly.") from None
        self._has_more = bool(message.get("more_body"))
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > MAX_BODY_BYTES:
            raise HTTPException(413, TOO_LARGE)
        return message
