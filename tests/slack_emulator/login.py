"""Who may open the emulator: whoever holds the one-time link, on this machine only.

Whoever opens the emulator can act as anyone in it, so it has a login of its own.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "keyturn_emulator"

Mint = Callable[[], str]

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class SignIn:
    """Hands out one-time links, and knows who came through one. `mint` makes each secret."""

    def __init__(self, mint: Mint = lambda: secrets.token_urlsafe(32)) -> None:
        self._mint = mint
        self._unused: list[str] = []
        self._sessions: list[str] = []

    def ticket(self) -> str:
        """Return a secret that opens the emulator once."""
        self._unused.append(self._mint())
        return self._unused[-1]

    def redeem(self, ticket: str) -> str | None:
        """Return a session's secret for a ticket that was not used before."""
        for index, unused in enumerate(self._unused):
            if hmac.compare_digest(unused.encode(), ticket.encode()):
                del self._unused[index]
                self._sessions.append(self._mint())
                return self._sessions[-1]
        return None

    def knows(self, connection: HTTPConnection) -> bool:
        given = connection.cookies.get(COOKIE, "").encode()
        known = [hmac.compare_digest(given, session.encode()) for session in self._sessions]
        return any(known)


class Guard:
    """Stands before everything: this machine only, our own name only, our own pages only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        trouble = _trouble(HTTPConnection(scope))
        if scope["type"] == "websocket":
            await (_turned_away if trouble else self._app)(scope, receive, send)
        elif trouble:
            await PlainTextResponse(trouble, 403)(scope, receive, _with_headers(send))
        else:
            await self._app(scope, receive, _with_headers(send))


async def _turned_away(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "websocket.close", "code": 1008})


def _with_headers(send: Send) -> Send:
    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
        await send(message)

    return tell


def _trouble(connection: HTTPConnection) -> str:
    """Return why a request is turned away: rebinding, another machine, or an address unknown."""
    if connection.client is None or not _is_local(connection.client.host):
        return "The emulator is for this machine only: open it from here."
    if _host_of("//" + connection.headers.get("host", "")) not in _LOCAL_NAMES:
        return "The emulator answers to localhost only: open it by that name."
    return ""


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def came_from_our_page(connection: HTTPConnection) -> bool:
    """Tell whether a browser sent this from one of our own pages, as every browser of today says.

    Another port of this machine is the same *site* and shares our cookie, so nothing less
    than the same origin counts.
    """
    fetched = connection.headers.get("sec-fetch-site")
    origin = connection.headers.get("origin")
    if fetched is not None and fetched != "same-origin":
        return False
    if origin is not None:
        return origin == f"{connection.url.scheme}://{connection.headers.get('host', '')}"
    return fetched == "same-origin"
