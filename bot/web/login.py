"""Signing in by a one-time link from chat, and signing out."""

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit import change_log, refusals
from bot.auth import sessions
from bot.db.database import Transaction
from bot.model.text import escape_to_one_line
from bot.web import errors, redirects
from bot.web.deps import WebDependencies, WebDeps
from bot.web.redirects import TargetPageQuery
from bot.web.templating import render_page

router = APIRouter()

_MAX_TOKEN_LENGTH = 100


@router.get("/sign-in/{token}")
def show_sign_in(
    request: Request, parts: WebDeps, token: str, to: TargetPageQuery = ""
) -> Response:
    """Show the button, and whom it signs in.

    Only pressing it uses the link: previews and prefetching merely look.
    """
    with parts.database.reading() as tx:
        person = sessions.read_sign_in_link(tx, token) if len(token) < _MAX_TOKEN_LENGTH else None
    known = parts.policies.get_policy().find_person(person) if person else None
    return render_page(
        request,
        "sign_in.html",
        to=_get_target_page(request, parts, to),
        name=known.name if known else "",
    )


@router.post("/sign-in/{token}")
def sign_in_by_link(
    request: Request, parts: WebDeps, token: str, to: TargetPageQuery = ""
) -> Response:
    """Use the link up and begin a session with a token of its own."""
    with parts.database.transaction() as tx:
        person = sessions.use_sign_in_link(tx, token) if len(token) < _MAX_TOKEN_LENGTH else None
        known = person and parts.policies.get_policy().find_person(person)
        session = known and _create_session(tx, request, parts, known.id, method="link")
        if session is None:
            whose, why = person or "", "not in the policy"
            if person is None:
                whose, why = sessions.describe_refused_link(tx, token)
            refusals.log_refusal(tx, refusals.SIGN_IN, account=whose, reason=why, source="web")
    if session is None:
        raise HTTPException(
            410,
            "A link works once, for ten minutes. Type /keyturn web in Slack for a new one.",
        )
    return _redirect_signed_in(request, parts, session, _get_target_page(request, parts, to))


def begin_session_of_person(
    request: Request, parts: WebDependencies, person: str, *, method: str, to: str
) -> Response:
    """Begin a session of somebody who has proven by other means who they are."""
    with parts.database.transaction() as tx:
        session = _create_session(tx, request, parts, person, method=method)
    return _redirect_signed_in(request, parts, session, to)


@router.post("/sign-out")
def sign_out(request: Request, parts: WebDeps) -> Response:
    token = request.cookies.get(parts.cookie_name, "")
    with parts.database.transaction() as tx:
        session = sessions.find_session(tx, token)
        if session is not None:
            sessions.end_session(tx, token)
            change_log.append_entry(tx, "signed out", person=session.person, source="web")
    answer = render_page(
        request, "signed_out.html", why="You are signed out.", provider=parts.provider_name, to="/"
    )
    errors.delete_session_cookie(answer, parts)
    return answer


def _get_target_page(request: Request, parts: WebDependencies, to: str) -> str:
    """Return where a link leads: where it says, else where this browser wanted to go."""
    return redirects.get_safe_page(to) if to else redirects.read_target_page(request, parts)


def _create_session(
    tx: Transaction, request: Request, parts: WebDependencies, person: str, *, method: str
) -> str:
    """Return a token of its own: whatever session the browser came with has ended."""
    old = request.cookies.get(parts.cookie_name)
    if old:
        sessions.end_session(tx, old)
    agent = escape_to_one_line(request.headers.get("user-agent", ""))[: sessions.MAX_AGENT_LENGTH]
    change_log.append_entry(tx, "signed in", person=person, source="web", method=method)
    return sessions.begin_session(tx, person, signed_in_by=method, user_agent=agent)


def _redirect_signed_in(
    request: Request, parts: WebDependencies, session_token: str, to: str
) -> Response:
    answer = RedirectResponse(redirects.get_safe_page(to), 303)
    redirects.delete_target_page(request, answer, parts)
    _set_session_cookie(answer, parts, session_token)
    return answer


def _set_session_cookie(response: Response, parts: WebDependencies, session_token: str) -> None:
    response.set_cookie(
        parts.cookie_name,
        session_token,
        max_age=sessions.MAX_SECONDS,
        path="/",
        secure=parts.secure_cookies,
        httponly=True,
        samesite="lax",
    )
