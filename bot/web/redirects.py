"""Onward: the page that somebody wanted when they were asked who they are, and come to then."""

import base64
import binascii
import re
from typing import Annotated

from fastapi import Query, Request, Response

from bot.web.deps import WebDependencies

MAX_LENGTH = 2000
_COOKIE_SECONDS = 10 * 60
# Every page that somebody may be on. What follows its `?` only says what the page shows.
_PAGE_PATTERN = re.compile(
    r"(/|/(runs|log|tokens|sessions|second-factor|stop|bans|hosts|around|ask|report|condition"
    r"|schedules|mandates|policy)|/runs/compare|/schedules/new|/ask/form|/(runs|log)\.(csv|json)"
    r"|/(runs|schedules|views)/[1-9][0-9]{0,8}|/runs/[1-9][0-9]{0,8}/erase"
    r"|/(hosts|policy)/[a-z0-9][a-z0-9._-]{0,62})"
    r"(\?[!$-;=?-\[\]^-~]*)?",
    re.ASCII,
)

TargetPageQuery = Annotated[str, Query(alias="next", max_length=MAX_LENGTH)]


def get_safe_page(url: str) -> str:
    """Return the address if it is one of our pages, else the first page."""
    return url if len(url) <= MAX_LENGTH and _PAGE_PATTERN.fullmatch(url) else "/"


def get_requested_page(request: Request) -> str:
    """Return the address that was asked for, with what follows its `?` if that can be kept."""
    path, query = request.url.path, request.url.query
    whole = get_safe_page(f"{path}?{query}") if query and request.method == "GET" else "/"
    return whole if whole != "/" else get_safe_page(path)


def store_target_page(
    request: Request, response: Response, parts: WebDependencies, page_url: str
) -> None:
    """Have the browser keep it until somebody signs in there by a link from chat.

    Not what a page asks for by itself: it is no page that somebody would come back to.
    """
    headers = request.headers
    by_itself = "hx-request" in headers or headers.get("sec-fetch-mode", "navigate") != "navigate"
    if page_url == "/" or by_itself:
        return
    response.set_cookie(
        _get_cookie_name(parts),
        encode_page(page_url),
        max_age=_COOKIE_SECONDS,
        path="/",
        secure=parts.secure_cookies,
        httponly=True,
        samesite="lax",
    )


def read_target_page(request: Request, parts: WebDependencies) -> str:
    """Return what the browser has kept, or the first page."""
    return decode_page(request.cookies.get(_get_cookie_name(parts), "")) or "/"


def delete_target_page(request: Request, response: Response, parts: WebDependencies) -> None:
    """Take it away from a browser that has kept it: one has come there."""
    name = _get_cookie_name(parts)
    if name in request.cookies:
        response.delete_cookie(
            name, path="/", secure=parts.secure_cookies, httponly=True, samesite="lax"
        )


def encode_page(page_url: str) -> str:
    """Return a page of ours so that it can stand in a cookie."""
    return base64.urlsafe_b64encode(get_safe_page(page_url).encode()).rstrip(b"=").decode()


def decode_page(text: str) -> str | None:
    """Return the page that was packed; None if it was not packed by us."""
    try:
        return get_safe_page(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except (binascii.Error, ValueError):
        return None


def _get_cookie_name(parts: WebDependencies) -> str:
    return f"{parts.cookie_name}-onward"
