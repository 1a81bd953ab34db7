"""Signing in by a one-time link from chat, and signing out."""

import re
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse

from bot.store import changelog, refusals, signins
from bot.store.database import Transaction
from bot.visible import one_line
from bot.web import trouble
from bot.web.pages import page
from bot.web.parts import Here, WebParts

router = APIRouter()

# Every page that somebody may be on when they are asked who they are, without what follows a `?`.
_ONWARD = re.compile(
    r"/|/(runs|log|tokens|sessions|second-factor|stop|hosts|around|ask|report|condition|schedules"
    r"|mandates|policy)|/(runs|schedules|views)/[1-9][0-9]{0,8}|/runs/[1-9][0-9]{0,8}/erase"
    r"|/(hosts|policy)/[a-z0-9][a-z0-9._-]{0,62}",
    re.ASCII,
)
_LONGEST_TOKEN = 100

Next = Annotated[str, Query(alias="next", max_length=200)]


@router.get("/sign-in/{token}")
def ask(request: Request, token: str, to: Next = "/") -> Response:  # noqa: ARG001 - the form posts to the same address
    """Show the button. Only pressing it uses the link: previews and prefetching merely look."""
    return page(request, "sign_in.html", to=onward(to))


@router.post("/sign-in/{token}")
def sign_in(request: Request, parts: Here, token: str, to: Next = "/") -> Response:
    """Use the link up and begin a session with a token of its own."""
    with parts.database.transaction() as tx:
        person = signins.use_link(tx, token) if len(token) < _LONGEST_TOKEN else None
        known = person and parts.policies.current().person(person)
        session = known and _session(tx, request, parts, known.id, by="link")
        if session is None:
            whose, why = person or "", "not in the policy"
            if person is None:
                whose, why = signins.why_refused(tx, token)
            refusals.note(tx, refusals.SIGN_IN, whose=whose, why=why, door="web")
    if session is None:
        raise HTTPException(
            410,
            "A link works once, for ten minutes. Type /keyturn web in Slack for a new one.",
        )
    return _entered(parts, session, to)


def begin(request: Request, parts: WebParts, person: str, *, by: str, to: str) -> Response:
    """Begin a session of somebody who has proven by other means who they are."""
    with parts.database.transaction() as tx:
        session = _session(tx, request, parts, person, by=by)
    return _entered(parts, session, to)


@router.post("/sign-out")
def sign_out(request: Request, parts: Here) -> Response:
    token = request.cookies.get(parts.cookie, "")
    with parts.database.transaction() as tx:
        session = signins.find(tx, token)
        if session is not None:
            signins.end(tx, token)
            changelog.append(tx, "signed out", person=session.person, door="web")
    answer = page(
        request, "signed_out.html", why="You are signed out.", provider=parts.provider_name
    )
    trouble.forget(answer, parts)
    return answer


def onward(path: str) -> str:
    """Return the path if it is one of our pages, else the first page."""
    return path if _ONWARD.fullmatch(path) else "/"


def _session(tx: Transaction, request: Request, parts: WebParts, person: str, *, by: str) -> str:
    """Return a token of its own: whatever session the browser came with has ended."""
    old = request.cookies.get(parts.cookie)
    if old:
        signins.end(tx, old)
    agent = one_line(request.headers.get("user-agent", ""))[: signins.LONGEST_AGENT]
    changelog.append(tx, "signed in", person=person, door="web", by=by)
    return signins.begin(tx, person, by=by, agent=agent)


def _entered(parts: WebParts, session: str, to: str) -> Response:
    answer = RedirectResponse(onward(to), 303)
    _remember(answer, parts, session)
    return answer


def _remember(answer: Response, parts: WebParts, session: str) -> None:
    answer.set_cookie(
        parts.cookie,
        session,
        max_age=signins.LONGEST_SECONDS,
        path="/",
        secure=parts.secure_cookies,
        httponly=True,
        samesite="lax",
    )
