"""Signing in by a one-time link from chat, and signing out."""

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit import change_log, refusals
from bot.auth import sessions
from bot.db.database import Transaction
from bot.model.text import escape_to_one_line
from bot.web import errors, redirects
from bot.web.deps import Here, WebParts
from bot.web.redirects import Next
from bot.web.templating import page

router = APIRouter()

_LONGEST_TOKEN = 100


@router.get("/sign-in/{token}")
def ask(request: Request, parts: Here, token: str, to: Next = "") -> Response:
    """Show the button, and whom it signs in.

    Only pressing it uses the link: previews and prefetching merely look.
    """
    with parts.database.reading() as tx:
        person = sessions.read_link(tx, token) if len(token) < _LONGEST_TOKEN else None
    known = parts.policies.current().person(person) if person else None
    return page(
        request,
        "sign_in.html",
        to=_onward(request, parts, to),
        name=known.name if known else "",
    )


@router.post("/sign-in/{token}")
def sign_in(request: Request, parts: Here, token: str, to: Next = "") -> Response:
    """Use the link up and begin a session with a token of its own."""
    with parts.database.transaction() as tx:
        person = sessions.use_link(tx, token) if len(token) < _LONGEST_TOKEN else None
        known = person and parts.policies.current().person(person)
        session = known and _session(tx, request, parts, known.id, by="link")
        if session is None:
            whose, why = person or "", "not in the policy"
            if person is None:
                whose, why = sessions.why_refused(tx, token)
            refusals.log_refusal(tx, refusals.SIGN_IN, whose=whose, why=why, door="web")
    if session is None:
        raise HTTPException(
            410,
            "A link works once, for ten minutes. Type /keyturn web in Slack for a new one.",
        )
    return _entered(request, parts, session, _onward(request, parts, to))


def begin(request: Request, parts: WebParts, person: str, *, by: str, to: str) -> Response:
    """Begin a session of somebody who has proven by other means who they are."""
    with parts.database.transaction() as tx:
        session = _session(tx, request, parts, person, by=by)
    return _entered(request, parts, session, to)


@router.post("/sign-out")
def sign_out(request: Request, parts: Here) -> Response:
    token = request.cookies.get(parts.cookie, "")
    with parts.database.transaction() as tx:
        session = sessions.find_session(tx, token)
        if session is not None:
            sessions.end_session(tx, token)
            change_log.append_entry(tx, "signed out", person=session.person, door="web")
    answer = page(
        request, "signed_out.html", why="You are signed out.", provider=parts.provider_name, to="/"
    )
    errors.forget(answer, parts)
    return answer


def _onward(request: Request, parts: WebParts, to: str) -> str:
    """Return where a link leads: where it says, else where this browser wanted to go."""
    return redirects.onward(to) if to else redirects.remembered(request, parts)


def _session(tx: Transaction, request: Request, parts: WebParts, person: str, *, by: str) -> str:
    """Return a token of its own: whatever session the browser came with has ended."""
    old = request.cookies.get(parts.cookie)
    if old:
        sessions.end_session(tx, old)
    agent = escape_to_one_line(request.headers.get("user-agent", ""))[: sessions.LONGEST_AGENT]
    change_log.append_entry(tx, "signed in", person=person, door="web", by=by)
    return sessions.begin_session(tx, person, by=by, agent=agent)


def _entered(request: Request, parts: WebParts, session: str, to: str) -> Response:
    answer = RedirectResponse(redirects.onward(to), 303)
    redirects.forget(request, answer, parts)
    _remember(answer, parts, session)
    return answer


def _remember(answer: Response, parts: WebParts, session: str) -> None:
    answer.set_cookie(
        parts.cookie,
        session,
        max_age=sessions.LONGEST_SECONDS,
        path="/",
        secure=parts.secure_cookies,
        httponly=True,
        samesite="lax",
    )
