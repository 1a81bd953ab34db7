"""Onward: the page that somebody wanted when they were asked who they are, and come to then."""

import base64
import binascii
import re
from typing import Annotated

from fastapi import Query, Request, Response

from bot.web.deps import WebParts

LONGEST = 2000
_SECONDS = 10 * 60
# Every page that somebody may be on. What follows its `?` only says what the page shows.
_PAGE = re.compile(
    r"(/|/(runs|log|tokens|sessions|second-factor|stop|bans|hosts|around|ask|report|condition"
    r"|schedules|mandates|policy)|/runs/compare|/schedules/new|/ask/form|/(runs|log)\.(csv|json)"
    r"|/(runs|schedules|views)/[1-9][0-9]{0,8}|/runs/[1-9][0-9]{0,8}/erase"
    r"|/(hosts|policy)/[a-z0-9][a-z0-9._-]{0,62})"
    r"(\?[!$-;=?-\[\]^-~]*)?",
    re.ASCII,
)

Next = Annotated[str, Query(alias="next", max_length=LONGEST)]


def onward(address: str) -> str:
    """Return the address if it is one of our pages, else the first page."""
    return address if len(address) <= LONGEST and _PAGE.fullmatch(address) else "/"


def wanted(request: Request) -> str:
    """Return the address that was asked for, with what follows its `?` if that can be kept."""
    path, query = request.url.path, request.url.query
    whole = onward(f"{path}?{query}") if query and request.method == "GET" else "/"
    return whole if whole != "/" else onward(path)


def remember(request: Request, answer: Response, parts: WebParts, to: str) -> None:
    """Have the browser keep it until somebody signs in there by a link from chat.

    Not what a page asks for by itself: it is no page that somebody would come back to.
    """
    headers = request.headers
    by_itself = "hx-request" in headers or headers.get("sec-fetch-mode", "navigate") != "navigate"
    if to == "/" or by_itself:
        return
    answer.set_cookie(
        _cookie(parts),
        packed(to),
        max_age=_SECONDS,
        path="/",
        secure=parts.secure_cookies,
        httponly=True,
        samesite="lax",
    )


def remembered(request: Request, parts: WebParts) -> str:
    """Return what the browser has kept, or the first page."""
    return unpacked(request.cookies.get(_cookie(parts), "")) or "/"


def forget(request: Request, answer: Response, parts: WebParts) -> None:
    """Take it away from a browser that has kept it: one has come there."""
    name = _cookie(parts)
    if name in request.cookies:
        answer.delete_cookie(
            name, path="/", secure=parts.secure_cookies, httponly=True, samesite="lax"
        )


def packed(to: str) -> str:
    """Return a page of ours so that it can stand in a cookie."""
    return base64.urlsafe_b64encode(onward(to).encode()).rstrip(b"=").decode()


def unpacked(text: str) -> str | None:
    """Return the page that was packed; None if it was not packed by us."""
    try:
        return onward(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except (binascii.Error, ValueError):
        return None


def _cookie(parts: WebParts) -> str:
    return f"{parts.cookie}-onward"
