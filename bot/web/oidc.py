"""Signing in by the provider that the installation names: out to it, and back with its word."""

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit import refusals
from bot.db import dedup
from bot.model.text import escape_to_one_line
from bot.web.deps import WebDependencies, WebDeps
from bot.web.id_token import InvalidIdTokenError, find_person_of_claims, format_account_entry
from bot.web.login import begin_session_of_person
from bot.web.provider import IdentityProvider, ProviderError, derive_value
from bot.web.redirects import TargetPageQuery, decode_page, encode_page
from bot.web.templating import render_page
from bot.workflow.bans import describe_ban

router = APIRouter(prefix="/oidc")
log = logging.getLogger(__name__)

CALLBACK_PATH = "/oidc/back"
_ATTEMPT_SECONDS = 10 * 60

CallbackQuery = Annotated[str | None, Query(max_length=4096)]


class _SignInError(Exception):
    """The message says why; status: of the page that tells it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class _SignInAttempt:
    """What the browser has kept while it was away. secret: never sent to the provider itself."""

    secret: str
    target_page: str


@router.get("/begin")
def redirect_to_provider(request: Request, parts: WebDeps, to: TargetPageQuery = "/") -> Response:
    """Send the browser to the provider, with a secret of its own to come back with."""
    provider = _get_provider(parts)
    secret = secrets.token_urlsafe(32)
    try:
        address = provider.build_authorization_url(
            secret, redirect_uri=parts.base_url + CALLBACK_PATH
        )
    except ProviderError as trouble:
        return _render_failure(request, provider, _build_no_answer_error(provider, trouble))
    answer = RedirectResponse(address, 303)
    answer.set_cookie(
        _get_cookie_name(parts),
        f"{secret}.{encode_page(to)}",
        max_age=_ATTEMPT_SECONDS,
        path="/",
        secure=parts.secure_cookies,
        httponly=True,
        samesite="lax",
    )
    return answer


@router.get("/back")
def handle_callback(
    request: Request,
    parts: WebDeps,
    state: CallbackQuery = None,
    code: CallbackQuery = None,
    error: CallbackQuery = None,
    iss: CallbackQuery = None,
) -> Response:
    """Take the provider's word for who this is, if the answer is to what this browser began."""
    provider = _get_provider(parts)
    attempt = _parse_attempt(request.cookies.get(_get_cookie_name(parts), ""))
    if attempt is None or not is_own_state(attempt.secret, state):
        # Nothing is noted and nothing ends: anybody can have a browser ask for this address.
        words = "This browser did not begin this, or began it too long ago."
        return _render_failure(request, provider, _SignInError(400, words))
    try:
        claims = _fetch_claims(parts, provider, attempt, code=code, error=error, iss=iss)
        answer = _sign_in_person(request, parts, provider, claims, attempt.target_page)
    except _SignInError as no:
        answer = _render_failure(request, provider, no)
    answer.delete_cookie(
        _get_cookie_name(parts),
        path="/",
        secure=parts.secure_cookies,
        httponly=True,
        samesite="lax",
    )
    return answer


def is_own_state(secret: str, state: str | None) -> bool:
    """Say whether an answer is to what the keeper of *secret* began: nobody else could know."""
    wanted = derive_value(secret, "state")
    return state is not None and hmac.compare_digest(wanted.encode(), state.encode())


def _fetch_claims(
    parts: WebDependencies,
    provider: IdentityProvider,
    attempt: _SignInAttempt,
    *,
    code: str | None,
    error: str | None,
    iss: str | None,
) -> Mapping[str, Any]:
    name = provider.registration.name
    try:
        if not provider.is_own_issuer(iss):
            raise InvalidIdTokenError("the answer is another provider's")
        if error or not code:
            raise InvalidIdTokenError(
                f"the answer is {escape_to_one_line(error or 'no code')[:80]}"
            )
        with parts.database.transaction() as tx:
            first = dedup.remember_first(tx, f"oidc {_hash_secret(attempt.secret)}")
        if not first:
            raise InvalidIdTokenError("the answer was used before")
        return provider.fetch_claims(
            attempt.secret, code, redirect_uri=parts.base_url + CALLBACK_PATH
        )
    except ProviderError as trouble:
        raise _build_no_answer_error(provider, trouble) from None
    except InvalidIdTokenError as no:
        refusals.log_refusal_in_own_transaction(
            parts.database, refusals.SIGN_IN, account="", reason=f"{name}: {no}", source="web"
        )
        raise _SignInError(403, f"{name} did not sign you in: {no}.") from None


def _sign_in_person(
    request: Request,
    parts: WebDependencies,
    provider: IdentityProvider,
    claims: Mapping[str, Any],
    to: str,
) -> Response:
    given = provider.registration
    policy = parts.policies.get_policy()
    found = find_person_of_claims(
        claims, policy.organisation, issuer=given.issuer, is_slack=given.is_slack
    )
    known = found and policy.find_person(found.id)
    if known:
        return begin_session_of_person(request, parts, known.id, method="oidc", to=to)
    notice = describe_ban(
        parts.policies,
        parts.database,
        lambda household: find_person_of_claims(
            claims, household, issuer=given.issuer, is_slack=given.is_slack
        ),
    )
    account = format_account_entry(claims, is_slack=given.is_slack)
    why = f"{given.name}: {account} is {'banned' if notice else 'nobody of the policy'}"
    refusals.log_refusal_in_own_transaction(
        parts.database, refusals.SIGN_IN, account="", reason=why, source="web"
    )
    if notice:
        raise _SignInError(403, notice)
    where = "slack" if given.is_slack else "oidc"
    raise _SignInError(
        403,
        f"{given.name} says who you are, but Keyturn does not know you. Somebody who keeps its "
        f"policy can add you to people.yaml, under {where}: {account}",
    )


def _get_provider(parts: WebDependencies) -> IdentityProvider:
    if parts.identity_provider is None:
        raise HTTPException(404)
    return parts.identity_provider


def _render_failure(request: Request, provider: IdentityProvider, error: _SignInError) -> Response:
    return render_page(
        request,
        "not_signed_in.html",
        status=error.status,
        words=str(error),
        provider=provider.registration.name,
    )


def _build_no_answer_error(provider: IdentityProvider, error: ProviderError) -> _SignInError:
    log.error("nobody can sign in by %s: %s", provider.registration.name, error)
    return _SignInError(
        503,
        f"{provider.registration.name} does not answer as it should, so nobody can sign in by it "
        "now. Try it again in a moment; whoever runs Keyturn finds the reason in its log.",
    )


def _get_cookie_name(parts: WebDependencies) -> str:
    return f"{parts.cookie_name}-oidc"


def _parse_attempt(cookie: str) -> _SignInAttempt | None:
    secret, _, kept = cookie.partition(".")
    to = decode_page(kept)
    return _SignInAttempt(secret, to) if to and len(secret) >= 43 else None


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
