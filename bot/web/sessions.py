"""Sessions page: list and end the sessions of the user."""

import re
from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import RedirectResponse

from bot.audit import change_log, events
from bot.auth import sessions
from bot.web import errors
from bot.web.visit import Visit

router = APIRouter(prefix="/sessions")

SessionNamePath = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.get("")
def show_sessions(visit: Visit) -> Response:
    with visit.read_viewable() as tx:
        mine = sessions.list_sessions(tx, visit.person)
        current = sessions.find_session(tx, visit.session)
    return visit.render(
        "sessions.html",
        sessions=mine,
        describe_user_agent=describe_user_agent,
        current_session=current.name if current else "",
        notice="The session has ended." if visit.done == "ended" else "",
        idle_minutes=sessions.IDLE_SECONDS // 60,
        max_hours=sessions.MAX_SECONDS // 3600,
        provider=visit.deps.provider_name,
    )


@router.post("/{session}/end")
def end_session(visit: Visit, session: SessionNamePath) -> Response:
    """End one of the user's own sessions. A session that has already ended is no error."""
    with visit.deps.database.transaction() as tx:
        if sessions.end_named_session(tx, visit.person, session):
            change_log.append_entry(tx, events.SessionEnded(source="web"), person=visit.person)
    return RedirectResponse("/sessions?done=ended", 303)


@router.post("/end-all")
def end_all_sessions(visit: Visit) -> Response:
    """End every session of the user, including this one, and every unused sign-in link."""
    with visit.deps.database.transaction() as tx:
        sessions.end_all_sessions(tx, visit.person)
        change_log.append_entry(tx, events.SessionsEnded(source="web"), person=visit.person)
    visit.request.state.user = None
    response = visit.render(
        "signed_out.html",
        message="You are signed out everywhere.",
        provider=visit.deps.provider_name,
        has_slack=visit.deps.has_slack,
        target_page="/",
    )
    errors.delete_session_cookie(response, visit.deps)
    return response


# The first match counts, because most browsers also name the browsers they imitate.
_BROWSER_PATTERNS = (
    (r"Edg(e|A|iOS)?/", "Edge"),
    (r"(OPR|Opera)/", "Opera"),
    (r"SamsungBrowser/", "Samsung Internet"),
    (r"(Firefox|FxiOS)/", "Firefox"),
    (r"(Headless)?(Chrome|Chromium|CriOS)/", "Chrome"),
    (r"Version/\S+.* Safari/", "Safari"),
)
_SYSTEM_PATTERNS = (
    (r"iPhone", "iPhone"),
    (r"iPad", "iPad"),
    (r"Android", "Android"),
    (r"CrOS", "ChromeOS"),
    (r"Windows", "Windows"),
    (r"Mac OS X|Macintosh", "macOS"),
    (r"Linux|X11", "Linux"),
)


def describe_user_agent(user_agent: str) -> str:
    """Return for example `Firefox on Linux`, or the header itself for an unknown client.

    The header is sent by the client, so it proves nothing.
    """
    found = [
        next((name for pattern, name in known if re.search(pattern, user_agent)), "")
        for known in (_BROWSER_PATTERNS, _SYSTEM_PATTERNS)
    ]
    if not found[0]:
        return user_agent or "Unknown browser"
    return " on ".join(filter(None, found))
