"""Request guard of all pages: origin and size of requests, security headers of responses."""

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
    """ASGI middleware that refuses foreign and oversized requests and sets security headers.

    Args:
        open_path: The path that takes forms of pages of any site: it looks at no session.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        origin: str,
        open_path: str,
        build_refusal: Callable[[int, str], Response],
    ) -> None:
        self._app, self._origin, self._build_refusal = app, origin, build_refusal
        self._open_path = open_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._get_refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, self._add_headers(scope, send))
            return
        # Answer HEAD like GET; the server omits the body.
        is_head = scope["method"] == "HEAD"
        inner_scope = {**scope, "method": "GET", "head": True} if is_head else scope
        await self._app(
            inner_scope, _LimitedBody(receive).receive_message, self._add_headers(scope, send)
        )

    def _get_refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        is_open = scope["method"] in {"GET", "HEAD"} or scope["path"] == self._open_path
        if not is_open and not is_same_origin(headers, self._origin):
            return self._build_refusal(
                403,
                "The request did not come from a page of Keyturn. "
                f"Open {self._origin} and try again there.",
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return self._build_refusal(413, TOO_LARGE)
        return None

    def _add_headers(self, scope: Scope, send: Send) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                set_security_headers(
                    MutableHeaders(scope=message), scope["path"], origin=self._origin
                )
            await send(message)

        return send_with_headers


TOO_LARGE = f"The request is larger than {MAX_BODY_BYTES // 1024} KiB. Shorten it and try again."


def is_same_origin(headers: Headers, origin: str) -> bool:
    """Return whether one of our own pages sent the request, according to the browser.

    Browsers send Origin with every POST, and all but old ones send Sec-Fetch-Site. A client that
    sends neither is not a browser and is refused.
    """
    sent_origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if sent_origin is None and site is None:
        return False
    return sent_origin in {None, origin} and site in {None, "same-origin"}


def set_security_headers(headers: MutableHeaders, path: str, *, origin: str) -> None:
    """Set the security headers of a response."""
    policy = headers.get("content-security-policy", "")
    headers.update(_SECURITY_HEADERS)
    if policy:  # of the signing page, which is the only one with its own
        headers["Content-Security-Policy"] = policy
    if origin.startswith("https:"):
        headers["Strict-Transport-Security"] = f"max-age={_SECONDS_PER_YEAR}"
    if not path.startswith("/static/"):
        headers["Cache-Control"] = "no-store"


class _LimitedBody:
    """Passes on a request body up to the limits of size and time, even without Content-Length."""

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
            raise HTTPException(408, "The request arrived too slowly. Try again.") from None
        self._has_more = bool(message.get("more_body"))
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > MAX_BODY_BYTES:
            raise HTTPException(413, TOO_LARGE)
        return message
