"""Sign in with an OpenID Connect provider: redirect to it and handle its callback."""

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit import events, refusals
from bot.db import dedup
from bot.model.text import escape_to_one_line
from bot.queries.banned_people import describe_ban
from bot.web.deps import WebDependencies, WebDeps
from bot.web.id_token import InvalidIdTokenError, find_person_of_claims, format_account_entry
from bot.web.login import begin_session_of_person
from bot.web.provider import IdentityProvider, ProviderError, derive_value
from bot.web.redirects import TargetPageQuery, decode_page, encode_page, read_target_page
from bot.web.templating import render_page

router = APIRouter(prefix="/oidc")
log = logging.getLogger(__name__)

CALLBACK_PATH = "/oidc/callback"
_ATTEMPT_SECONDS = 10 * 60

CallbackQuery = Annotated[str | None, Query(max_length=4096)]


class _SignInError(Exception):
    """A sign-in failed. `status` is the HTTP status of the error page."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class _SignInAttempt:
    """What the browser stores in a cookie during the sign-in."""

    secret: str
    """Never sent to the provider; only values derived from it are."""
    target_page: str


@router.get("/start")
def redirect_to_provider(
    request: Request, deps: WebDeps, target_page: TargetPageQuery = "/"
) -> Response:
    """Redirect the browser to the provider, with a new secret in a cookie."""
    provider = _get_provider(deps)
    secret = secrets.token_urlsafe(32)
    try:
        address = provider.build_authorization_url(
            secret, redirect_uri=deps.base_url + CALLBACK_PATH
        )
    except ProviderError as error:
        return _render_failure(
            request, provider, _build_unavailable_error(provider, error), target_page
        )
    response = RedirectResponse(address, 303)
    response.set_cookie(
        _get_cookie_name(deps),
        f"{secret}.{encode_page(target_page, deps)}",
        max_age=_ATTEMPT_SECONDS,
        **deps.cookie_flags,
    )
    return response


@router.get("/callback")
def handle_callback(
    request: Request,
    deps: WebDeps,
    state: CallbackQuery = None,
    code: CallbackQuery = None,
    error: CallbackQuery = None,
    iss: CallbackQuery = None,
) -> Response:
    """Sign in the person whom the provider names, if this browser started the sign-in."""
    provider = _get_provider(deps)
    attempt = _parse_attempt(request.cookies.get(_get_cookie_name(deps), ""), deps)
    if attempt is None or not is_own_state(attempt.secret, state):
        # Nothing is logged and no session ends, because any site can send a browser here.
        message = "This browser did not start the sign-in, or started it too long ago."
        return _render_failure(request, provider, _SignInError(400, message))
    try:
        claims = _fetch_claims(deps, provider, attempt, code=code, error=error, iss=iss)
        response = _sign_in_person(request, deps, provider, claims, attempt.target_page)
    except _SignInError as sign_in_error:
        response = _render_failure(request, provider, sign_in_error, attempt.target_page)
    response.delete_cookie(_get_cookie_name(deps), **deps.cookie_flags)
    return response


def is_own_state(secret: str, state: str | None) -> bool:
    """Return whether *state* was derived from *secret* by the browser that began the sign-in."""
    expected = derive_value(secret, "state")
    return state is not None and hmac.compare_digest(expected.encode(), state.encode())


def _fetch_claims(
    deps: WebDependencies,
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
            raise InvalidIdTokenError("the response is from another provider")
        if error or not code:
            raise InvalidIdTokenError(
                f"the response is {escape_to_one_line(error or 'no code')[:80]}"
            )
        with deps.database.transaction() as tx:
            first = dedup.remember_first(tx, f"oidc {_hash_secret(attempt.secret)}")
        if not first:
            raise InvalidIdTokenError("the response was already used")
        return provider.fetch_claims(
            attempt.secret, code, redirect_uri=deps.base_url + CALLBACK_PATH
        )
    except ProviderError as provider_error:
        raise _build_unavailable_error(provider, provider_error) from None
    except InvalidIdTokenError as token_error:
        refusals.log_refusal_in_own_transaction(
            deps.database,
            events.SignInRefused(account="", reason=f"{name}: {token_error}", source="web"),
        )
        raise _SignInError(403, f"{name} did not sign you in: {token_error}.") from None


def _sign_in_person(
    request: Request,
    deps: WebDependencies,
    provider: IdentityProvider,
    claims: Mapping[str, Any],
    target_page: str,
) -> Response:
    registration = provider.registration
    policy = deps.policies.get_policy()
    found = find_person_of_claims(
        claims, policy.organisation, issuer=registration.issuer, is_slack=registration.is_slack
    )
    known = found and policy.find_person(found.id)
    if known:
        return begin_session_of_person(request, deps, policy, known.id, claims, to=target_page)
    notice = describe_ban(
        deps.policies,
        deps.database,
        lambda organisation: find_person_of_claims(
            claims, organisation, issuer=registration.issuer, is_slack=registration.is_slack
        ),
    )
    account = format_account_entry(claims, is_slack=registration.is_slack)
    why = f"{registration.name}: {account} is {'banned' if notice else 'not in the policy'}"
    refusals.log_refusal_in_own_transaction(
        deps.database, events.SignInRefused(account="", reason=why, source="web")
    )
    if notice:
        raise _SignInError(403, notice)
    key = "slack" if registration.is_slack else "oidc"
    raise _SignInError(
        403,
        f"Your {registration.name} account is not in the policy of Keyturn. Ask an administrator "
        f"to add it to people.yaml, under {key}: {account}",
    )


def _get_provider(deps: WebDependencies) -> IdentityProvider:
    if deps.identity_provider is None:
        raise HTTPException(404)
    return deps.identity_provider


def _render_failure(
    request: Request, provider: IdentityProvider, error: _SignInError, target_page: str = ""
) -> Response:
    deps: WebDependencies = request.app.state.deps
    return render_page(
        request,
        "not_signed_in.html",
        status=error.status,
        message=str(error),
        provider=provider.registration.name,
        has_slack=deps.has_slack,
        target_page=target_page or read_target_page(request, deps),
    )


def _build_unavailable_error(provider: IdentityProvider, error: ProviderError) -> _SignInError:
    log.error("sign-in with %s does not work: %s", provider.registration.name, error)
    return _SignInError(
        503,
        f"{provider.registration.name} returns errors, so signing in with it does not work now. "
        "Try again shortly. Administrators find the reason in the log of the service.",
    )


def _get_cookie_name(deps: WebDependencies) -> str:
    return f"{deps.cookie_name}-oidc"


def _parse_attempt(cookie: str, deps: WebDependencies) -> _SignInAttempt | None:
    secret, _, encoded = cookie.partition(".")
    target_page = decode_page(encoded, deps)
    return _SignInAttempt(secret, target_page) if target_page and len(secret) >= 43 else None


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
