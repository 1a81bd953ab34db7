"""Redirects after sign-in: the page that was requested before."""

import base64
import binascii
import re
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from bot.web.deps import WebDependencies
from bot.web.pages import NAME_PATTERN, NUMBER_PATTERN

MAX_LENGTH = 2000
_COOKIE_SECONDS = 10 * 60
_MAX_TYPED_LENGTH = 2000
# Fields that a person does not type, and codes, which are secret.
_UNTYPED_FIELDS = frozenset({"code", "confirmed", "credential", "digest", "next", "zone"})
# Every page of the core that may be the target. Its query string only selects what it shows.
_PAGE_PATTERN = re.compile(
    r"/|/(runs|changelog|tokens|sessions|second-factor|stop|bans|hosts|changes|runbooks|health"
    r"|access|policy)|/runs/compare|/runbooks/form|/(runs|changelog)\.(csv|json)"
    rf"|/(runs|views)/{NUMBER_PATTERN}|/(hosts|policy)/{NAME_PATTERN}",
    re.ASCII,
)
_QUERY_PATTERN = re.compile(r"[!$-;=?-\[\]^-~]*", re.ASCII)

TargetPageQuery = Annotated[str, Query(alias="next", max_length=MAX_LENGTH)]


def get_safe_page(url: str, deps: WebDependencies) -> str:
    """Return the address if it is one of our pages, or else the home page."""
    path, _, query = url.partition("?")
    is_page = _PAGE_PATTERN.fullmatch(path) or deps.feature_page_pattern.fullmatch(path)
    is_safe = len(url) <= MAX_LENGTH and is_page and _QUERY_PATTERN.fullmatch(query)
    return url if is_safe else "/"


async def get_requested_page(request: Request, deps: WebDependencies) -> str:
    """Return the requested address, with its query string if that is safe to keep.

    Of a form that was sent, it is the page of the form; a request form is filled in as it was.
    """
    path, query = request.url.path, request.url.query
    if request.method == "POST":
        return await _get_page_of_form(request, deps)
    full_url = get_safe_page(f"{path}?{query}", deps) if query else "/"
    return full_url if full_url != "/" else get_safe_page(path, deps)


async def _get_page_of_form(request: Request, deps: WebDependencies) -> str:
    path = request.url.path
    if path == "/runbooks":
        async with request.form(max_files=0) as form:
            typed = {
                name.removeprefix("field-"): value
                for name, value in form.items()
                if isinstance(value, str) and value
            }
        page = get_safe_page(f"/runbooks/form?{urlencode(typed)}", deps)
        return page if page != "/" else path
    # The forms of a page are sent to addresses below it: /runs/7/deny.
    while path and get_safe_page(path, deps) == "/":
        path = path.rpartition("/")[0]
    return get_safe_page(path, deps)


async def read_typed_values(request: Request) -> dict[str, str]:
    """Return what a person typed into a form that was sent, to show it before they sign in."""
    async with request.form(max_files=0) as form:
        return {
            name: value[:_MAX_TYPED_LENGTH]
            for name, value in form.items()
            if isinstance(value, str) and value.strip() and name not in _UNTYPED_FIELDS
        }


def store_target_page(
    request: Request, response: Response, deps: WebDependencies, page_url: str
) -> None:
    """Store a page in a cookie until the person signs in.

    Requests that a page makes by itself are not stored, because they are no pages to return to.
    """
    if page_url == "/" or is_background_request(request):
        return
    response.set_cookie(
        _get_cookie_name(deps),
        encode_page(page_url, deps),
        max_age=_COOKIE_SECONDS,
        **deps.cookie_flags,
    )


def is_background_request(request: Request) -> bool:
    """Return whether a page made the request by itself, and not the person."""
    headers = request.headers
    return "hx-request" in headers or headers.get("sec-fetch-mode", "navigate") != "navigate"


def read_target_page(request: Request, deps: WebDependencies) -> str:
    """Return the stored page, or the home page."""
    return decode_page(request.cookies.get(_get_cookie_name(deps), ""), deps) or "/"


def delete_target_page(request: Request, response: Response, deps: WebDependencies) -> None:
    """Delete the stored page after the redirect."""
    name = _get_cookie_name(deps)
    if name in request.cookies:
        response.delete_cookie(name, **deps.cookie_flags)


def encode_page(page_url: str, deps: WebDependencies) -> str:
    """Return the address of a page as the value of a cookie."""
    return base64.urlsafe_b64encode(get_safe_page(page_url, deps).encode()).rstrip(b"=").decode()


def decode_page(text: str, deps: WebDependencies) -> str | None:
    """Return the page from the value of a cookie; None if the value is invalid."""
    try:
        page_url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        return get_safe_page(page_url, deps)
    except (binascii.Error, ValueError):
        return None


def _get_cookie_name(deps: WebDependencies) -> str:
    return f"{deps.cookie_name}-target"
