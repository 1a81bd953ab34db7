"""Sessions: where the visitor is signed in, and how that ends everywhere."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit import change_log
from bot.auth import sessions
from bot.web import errors
from bot.web.auth import CurrentVisitor
from bot.web.deps import WebDeps
from bot.web.templating import render_page
from bot.web.user_agent import describe_user_agent

router = APIRouter(prefix="/sessions")

SessionNamePath = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.get("")
def show_sessions(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, done: str = ""
) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        mine, here = (
            sessions.list_sessions(tx, visitor.id),
            sessions.find_session(tx, visitor.session_token),
        )
    return render_page(
        request,
        "sessions.html",
        sessions=mine,
        readable=describe_user_agent,
        here=here.name if here else "",
        notice="It has ended." if done == "ended" else "",
        idle=sessions.IDLE_SECONDS // 60,
        longest=sessions.MAX_SECONDS // 3600,
        provider=parts.provider_name,
    )


@router.post("/{session}/end")
def end_session(parts: WebDeps, visitor: CurrentVisitor, session: SessionNamePath) -> Response:
    """End one of the visitor's own sessions; one that has ended meanwhile is as it should be."""
    with parts.database.transaction() as tx:
        if sessions.end_named_session(tx, visitor.id, session):
            change_log.append_entry(tx, "session ended", person=visitor.id, source="web")
    return RedirectResponse("/sessions?done=ended", 303)


@router.post("/end-all")
def end_all_sessions(request: Request, parts: WebDeps, visitor: CurrentVisitor) -> Response:
    """End every session of the visitor, this one too, and every link that would begin one."""
    with parts.database.transaction() as tx:
        sessions.end_all_sessions(tx, visitor.id)
        change_log.append_entry(tx, "sessions ended", person=visitor.id, source="web")
    request.state.visitor = None
    answer = render_page(
        request,
        "signed_out.html",
        why="You are signed out everywhere.",
        provider=parts.provider_name,
        to="/",
    )
    errors.delete_session_cookie(answer, parts)
    return answer
