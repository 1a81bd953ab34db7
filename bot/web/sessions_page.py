"""Sessions: where the visitor is signed in, and how that ends everywhere."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.store import changelog, signins
from bot.web import trouble
from bot.web.agent import readable
from bot.web.pages import page
from bot.web.parts import Here
from bot.web.visitor import Visiting

router = APIRouter(prefix="/sessions")

Session = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting, done: str = "") -> Response:
    with parts.database.reading(visitor.sight) as tx:
        mine, here = signins.of(tx, visitor.id), signins.find(tx, visitor.session)
    return page(
        request,
        "sessions.html",
        sessions=mine,
        readable=readable,
        here=here.name if here else "",
        notice="It has ended." if done == "ended" else "",
        idle=signins.IDLE_SECONDS // 60,
        longest=signins.LONGEST_SECONDS // 3600,
        provider=parts.provider_name,
    )


@router.post("/{session}/end")
def end_one(parts: Here, visitor: Visiting, session: Session) -> Response:
    """End one of the visitor's own sessions; one that has ended meanwhile is as it should be."""
    with parts.database.transaction() as tx:
        if signins.end_named(tx, visitor.id, session):
            changelog.append(tx, "session ended", person=visitor.id, door="web")
    return RedirectResponse("/sessions?done=ended", 303)


@router.post("/end-all")
def end_all(request: Request, parts: Here, visitor: Visiting) -> Response:
    """End every session of the visitor, this one too, and every link that would begin one."""
    with parts.database.transaction() as tx:
        signins.end_all(tx, visitor.id)
        changelog.append(tx, "sessions ended", person=visitor.id, door="web")
    request.state.visitor = None
    answer = page(
        request,
        "signed_out.html",
        why="You are signed out everywhere.",
        provider=parts.provider_name,
        to="/",
    )
    trouble.forget(answer, parts)
    return answer
