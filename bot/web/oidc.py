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
from bot.web.deps import Here, WebParts
from bot.web.id_token import NotBelieved, named, whose
from bot.web.login import begin
from bot.web.provider import NoAnswer, Provider, derived
from bot.web.redirects import Next, packed, unpacked
from bot.web.templating import page
from bot.workflow.bans import ban_notice

router = APIRouter(prefix="/oidc")
log = logging.getLogger(__name__)

BACK = "/oidc/back"
_SECONDS = 10 * 60

Given = Annotated[str | None, Query(max_length=4096)]


class _NotSignedIn(Exception):
    """The message says why; status: of the page that tells it."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True)
class _Attempt:
    """What the browser has kept while it was away. secret: never sent to the provider itself."""

    secret: str
    to: str


@router.get("/begin")
def leave(request: Request, parts: Here, to: Next = "/") -> Response:
    """Send the browser to the provider, with a secret of its own to come back with."""
    provider = _provider(parts)
    secret = secrets.token_urlsafe(32)
    try:
        address = provider.address(secret, back=parts.base_url + BACK)
    except NoAnswer as trouble:
        return _told(request, provider, _silent(provider, trouble))
    answer = RedirectResponse(address, 303)
    answer.set_cookie(
        _cookie(parts),
        f"{secret}.{packed(to)}",
        max_age=_SECONDS,
        path="/",
        secure=parts.secure_cookies,
        httponly=True,
        samesite="lax",
    )
    return answer


@router.get("/back")
def come_back(
    request: Request,
    parts: Here,
    state: Given = None,
    code: Given = None,
    error: Given = None,
    iss: Given = None,
) -> Response:
    """Take the provider's word for who this is, if the answer is to what this browser began."""
    provider = _provider(parts)
    attempt = _attempt(request.cookies.get(_cookie(parts), ""))
    if attempt is None or not same_state(attempt.secret, state):
        # Nothing is noted and nothing ends: anybody can have a browser ask for this address.
        words = "This browser did not begin this, or began it too long ago."
        return _told(request, provider, _NotSignedIn(400, words))
    try:
        claims = _claims(parts, provider, attempt, code=code, error=error, iss=iss)
        answer = _welcome(request, parts, provider, claims, attempt.to)
    except _NotSignedIn as no:
        answer = _told(request, provider, no)
    answer.delete_cookie(
        _cookie(parts), path="/", secure=parts.secure_cookies, httponly=True, samesite="lax"
    )
    return answer


def same_state(secret: str, state: str | None) -> bool:
    """Say whether an answer is to what the keeper of *secret* began: nobody else could know."""
    wanted = derived(secret, "state")
    return state is not None and hmac.compare_digest(wanted.encode(), state.encode())


def _claims(
    parts: WebParts,
    provider: Provider,
    attempt: _Attempt,
    *,
    code: str | None,
    error: str | None,
    iss: str | None,
) -> Mapping[str, Any]:
    name = provider.registration.name
    try:
        if not provider.from_here(iss):
            raise NotBelieved("the answer is another provider's")
        if error or not code:
            raise NotBelieved(f"the answer is {escape_to_one_line(error or 'no code')[:80]}")
        with parts.database.transaction() as tx:
            first = dedup.remember_first(tx, f"oidc {_digest(attempt.secret)}")
        if not first:
            raise NotBelieved("the answer was used before")
        return provider.vouched(attempt.secret, code, back=parts.base_url + BACK)
    except NoAnswer as trouble:
        raise _silent(provider, trouble) from None
    except NotBelieved as no:
        refusals.log_refusal_apart(
            parts.database, refusals.SIGN_IN, whose="", why=f"{name}: {no}", door="web"
        )
        raise _NotSignedIn(403, f"{name} did not sign you in: {no}.") from None


def _welcome(
    request: Request, parts: WebParts, provider: Provider, claims: Mapping[str, Any], to: str
) -> Response:
    given = provider.registration
    policy = parts.policies.current()
    found = whose(claims, policy.household, issuer=given.issuer, slack=given.slack)
    known = found and policy.person(found.id)
    if known:
        return begin(request, parts, known.id, by="oidc", to=to)
    notice = ban_notice(
        parts.policies,
        parts.database,
        lambda household: whose(claims, household, issuer=given.issuer, slack=given.slack),
    )
    account = named(claims, slack=given.slack)
    why = f"{given.name}: {account} is {'banned' if notice else 'nobody of the policy'}"
    refusals.log_refusal_apart(parts.database, refusals.SIGN_IN, whose="", why=why, door="web")
    if notice:
        raise _NotSignedIn(403, notice)
    where = "slack" if given.slack else "oidc"
    raise _NotSignedIn(
        403,
        f"{given.name} says who you are, but Keyturn does not know you. Somebody who keeps its "
        f"policy can add you to people.yaml, under {where}: {account}",
    )


def _provider(parts: WebParts) -> Provider:
    if parts.provider is None:
        raise HTTPException(404)
    return parts.provider


def _told(request: Request, provider: Provider, no: _NotSignedIn) -> Response:
    return page(
        request,
        "not_signed_in.html",
        status=no.status,
        words=str(no),
        provider=provider.registration.name,
    )


def _silent(provider: Provider, trouble: NoAnswer) -> _NotSignedIn:
    log.error("nobody can sign in by %s: %s", provider.registration.name, trouble)
    return _NotSignedIn(
        503,
        f"{provider.registration.name} does not answer as it should, so nobody can sign in by it "
        "now. Try it again in a moment; whoever runs Keyturn finds the reason in its log.",
    )


def _cookie(parts: WebParts) -> str:
    return f"{parts.cookie}-oidc"


def _attempt(cookie: str) -> _Attempt | None:
    secret, _, kept = cookie.partition(".")
    to = unpacked(kept)
    return _Attempt(secret, to) if to and len(secret) >= 43 else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
