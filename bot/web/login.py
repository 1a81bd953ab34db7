"""Sign in by a one-time link, and sign out."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit import change_log, events, refusals
from bot.auth import sessions
from bot.db.database import Transaction
from bot.model.text import escape_to_one_line
from bot.policy import Policy
from bot.web import errors, redirects
from bot.web.deps import WebDependencies, WebDeps
from bot.web.redirects import TargetPageQuery
from bot.web.templating import render_page

router = APIRouter()

_MAX_TOKEN_LENGTH = 100


@router.get("/sign-in/{token}")
def show_sign_in(
    request: Request, deps: WebDeps, token: str, to: TargetPageQuery = ""
) -> Response:
    """Show the sign-in button.

    Only the button uses up the link, because browsers and chat clients prefetch links.
    """
    with deps.database.reading() as tx:
        person = sessions.read_sign_in_link(tx, token) if len(token) < _MAX_TOKEN_LENGTH else None
    known = deps.policies.get_policy().find_person(person) if person else None
    return render_page(
        request,
        "sign_in.html",
        target_page=_get_target_page(request, deps, to),
        name=known.name if known else "",
        new_link_hint=deps.new_link_hint,
    )


@router.post("/sign-in/{token}")
def sign_in_by_link(
    request: Request, deps: WebDeps, token: str, to: TargetPageQuery = ""
) -> Response:
    """Use up the link and begin a session."""
    with deps.database.transaction() as tx:
        person = sessions.use_sign_in_link(tx, token) if len(token) < _MAX_TOKEN_LENGTH else None
        known = person and deps.policies.get_policy().find_person(person)
        session = known and _create_session(tx, request, deps, known.id, method="link")
        if session is None:
            whose, why = person or "", "not in the policy"
            if person is None:
                whose, why = sessions.describe_refused_link(tx, token)
            refusals.log_refusal(tx, events.SignInRefused(account=whose, reason=why, source="web"))
    if session is None:
        raise HTTPException(
            410,
            f"A sign-in link works once, for 10 minutes. {deps.new_link_hint}",
        )
    return _redirect_signed_in(request, deps, session, _get_target_page(request, deps, to))


def begin_session_of_person(
    request: Request,
    deps: WebDependencies,
    policy: Policy,
    person: str,
    claims: Mapping[str, Any],
    *,
    to: str,
) -> Response:
    """Begin a session of a person whom an identity provider has authenticated by these claims."""
    with deps.database.transaction() as tx:
        for pages in deps.pages:
            if pages.record_claims is not None:
                pages.record_claims(tx, policy, person, claims)
        session = _create_session(tx, request, deps, person, method="oidc")
    return _redirect_signed_in(request, deps, session, to)


@router.post("/sign-out")
def sign_out(request: Request, deps: WebDeps) -> Response:
    token = request.cookies.get(deps.cookie_name, "")
    with deps.database.transaction() as tx:
        session = sessions.find_session(tx, token)
        if session is not None:
            sessions.end_session(tx, token)
            change_log.append_entry(tx, events.SignedOut(source="web"), person=session.person)
    response = render_page(
        request,
        "signed_out.html",
        message="You are signed out.",
        provider=deps.provider_name,
        has_slack=deps.has_slack,
        target_page="/",
    )
    errors.delete_session_cookie(response, deps)
    return response


def _get_target_page(request: Request, deps: WebDependencies, to: str) -> str:
    """Return the page of the link, or else the page that the browser asked for before."""
    return redirects.get_safe_page(to, deps) if to else redirects.read_target_page(request, deps)


def _create_session(
    tx: Transaction, request: Request, deps: WebDependencies, person: str, *, method: str
) -> str:
    """End the previous session of the browser, begin a new one and return its token."""
    old = request.cookies.get(deps.cookie_name)
    if old:
        sessions.end_session(tx, old)
    agent = escape_to_one_line(request.headers.get("user-agent", ""))[: sessions.MAX_AGENT_LENGTH]
    change_log.append_entry(tx, events.SignedIn(source="web", method=method), person=person)
    return sessions.begin_session(tx, person, signed_in_by=method, user_agent=agent)


def _redirect_signed_in(
    request: Request, deps: WebDependencies, session_token: str, to: str
) -> Response:
    response = RedirectResponse(redirects.get_safe_page(to, deps), 303)
    redirects.delete_target_page(request, response, deps)
    response.set_cookie(
        deps.cookie_name, session_token, max_age=sessions.MAX_SECONDS, **deps.cookie_flags
    )
    return response
