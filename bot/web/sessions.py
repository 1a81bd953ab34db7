"""Sessions page: list and end the sessions of the user."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit import change_log
from bot.auth import sessions
from bot.web import errors
from bot.web.auth import CurrentUser
from bot.web.deps import WebDeps
from bot.web.templating import render_page
from bot.web.user_agent import describe_user_agent

router = APIRouter(prefix="/sessions")

SessionNamePath = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.get("")
def show_sessions(request: Request, deps: WebDeps, user: CurrentUser, done: str = "") -> Response:
    with deps.database.reading(user.view_rights) as tx:
        mine, current = (
            sessions.list_sessions(tx, user.id),
            sessions.find_session(tx, user.session_token),
        )
    return render_page(
        request,
        "sessions.html",
        sessions=mine,
        describe_user_agent=describe_user_agent,
        current_session=current.name if current else "",
        notice="The session has ended." if done == "ended" else "",
        idle_minutes=sessions.IDLE_SECONDS // 60,
        max_hours=sessions.MAX_SECONDS // 3600,
        provider=deps.provider_name,
    )


@router.post("/{session}/end")
def end_session(deps: WebDeps, user: CurrentUser, session: SessionNamePath) -> Response:
    """End one of the user's own sessions. A session that has already ended is no error."""
    with deps.database.transaction() as tx:
        if sessions.end_named_session(tx, user.id, session):
            change_log.append_entry(tx, "session ended", person=user.id, source="web")
    return RedirectResponse("/sessions?done=ended", 303)


@router.post("/end-all")
def end_all_sessions(request: Request, deps: WebDeps, user: CurrentUser) -> Response:
    """End every session of the user, including this one, and every unused sign-in link."""
    with deps.database.transaction() as tx:
        sessions.end_all_sessions(tx, user.id)
        change_log.append_entry(tx, "sessions ended", person=user.id, source="web")
    request.state.user = None
    response = render_page(
        request,
        "signed_out.html",
        message="You are signed out everywhere.",
        provider=deps.provider_name,
        target_page="/",
    )
    errors.delete_session_cookie(response, deps)
    return response
