"""Authentication of API callers: each request looks up its token, its person and its scopes."""

import math
import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from bot import observability
from bot.api.deps import ApiParts
from bot.audit import events, refusals
from bot.auth import tokens
from bot.auth.tokens import ApiToken
from bot.db import stops
from bot.model.agents import is_agent
from bot.model.run import RequestOrigin
from bot.model.view_rights import ViewRights
from bot.policy import Person, Policy
from connectors.errors import DomainError

_AUTHORISATION = re.compile(r"bearer +(\S+) *", re.ASCII | re.IGNORECASE)

# The token scopes that allow each kind of route; one of them is enough.
_ALLOWING_SCOPES = {
    "read": {"read", "request", "approve"},
    "request": {"request"},
    "approve": {"approve"},
    "stop": {"request", "approve"},
    "metrics": {"metrics"},
}


class InvalidTokenError(DomainError):
    """The request carries no valid token.

    Args:
        message: What is wrong, and what to do.
        token: The token, where it is known but no longer valid.
    """

    code, status = "invalid-token", 401

    def __init__(self, message: str, token: ApiToken | None = None) -> None:
        self.prefix = token.prefix if token else ""
        self.person = token.person if token else ""
        super().__init__(message)


class InsufficientScopeError(DomainError):
    """The token lacks the scope that the route needs."""

    code, status = "insufficient-scope", 403

    def __init__(self, kind: str) -> None:
        allowing = _ALLOWING_SCOPES[kind]
        self.scope = kind if kind in allowing else min(allowing)
        super().__init__(f"this token lacks the scope {self.scope}: {tokens.CREATE_TOKEN_ADVICE}")


class AgentTokenError(InsufficientScopeError):
    """The token is an agent's, which no route of the API accepts."""

    def __init__(self) -> None:
        super().__init__("read")
        self.args = ("this token is an agent's: it is accepted at /mcp only",)


class RateLimitError(DomainError):
    """The token made too many requests. seconds: until it may make the next."""

    code, status = "rate-limited", 429

    def __init__(self, seconds: float) -> None:
        self.retry_seconds = math.ceil(seconds)
        super().__init__(f"too many requests with this token: try again in {self.retry_seconds} s")


@dataclass(frozen=True)
class Caller:
    """The person of a token, and the policy that applied when the request came in."""

    person: Person
    policy: Policy
    token: ApiToken
    received_at: int
    """Microseconds since 1970, by the clock of the database."""

    @property
    def id(self) -> str:
        return self.person.id

    @property
    def view_rights(self) -> ViewRights:
        """Which runs the caller may view."""
        return self.policy.get_view_rights(self.id)

    @property
    def origin(self) -> RequestOrigin:
        return RequestOrigin("api", user=self.token.prefix)

    def require_scope(self, kind: str) -> None:
        """Raise InsufficientScopeError unless the token allows this kind of route."""
        if not _ALLOWING_SCOPES[kind].intersection(self.token.scopes):
            raise InsufficientScopeError(kind)


def authenticate(request: Request, parts: ApiParts) -> Caller:
    """Return the caller of a request. Raises InvalidTokenError and RateLimitError."""
    known: Caller | None = getattr(request.state, "caller", None)
    if known is not None:
        return known
    header = _AUTHORISATION.fullmatch(request.headers.get("authorization", ""))
    if header is None:
        raise InvalidTokenError(
            f"send a token: Authorization: Bearer kt_…; {tokens.CREATE_TOKEN_ADVICE}"
        )
    try:
        caller = _find_caller(parts, header[1])
    except InvalidTokenError as refused:
        refusals.log_refusal_in_own_transaction(
            parts.database,
            events.TokenRefused(
                token=refused.prefix, owner=refused.person, reason=str(refused), source="api"
            ),
        )
        raise
    wait = parts.rate_limit.take(caller.token.id)
    if wait:
        raise RateLimitError(wait)
    request.state.caller = caller
    observability.add_context(person=caller.person.id)
    return caller


def _find_caller(parts: ApiParts, secret: str) -> Caller:
    with parts.database.reading() as tx:
        token, now = tokens.find_token(tx, secret), tx.now
        # A ban applies immediately, whichever process recorded it.
        is_banned = token is not None and token.person in stops.list_banned_people(tx)
    if token is None:
        raise InvalidTokenError(f"unknown token: {tokens.CREATE_TOKEN_ADVICE}")
    if is_agent(token.person):
        raise AgentTokenError
    if not token.is_active(now):
        ended = "was revoked" if token.revoked_at else "has expired"
        raise InvalidTokenError(f"this token {ended}: {tokens.CREATE_TOKEN_ADVICE}", token)
    policy = parts.policies.get_policy()
    person = None if is_banned else policy.find_person(token.person)
    if person is None:
        message = "the person of this token is banned or no longer in the policy"
        raise InvalidTokenError(message, token)
    tokens.note_token_use(parts.database, token, now=now)
    return Caller(person, policy, token, now)


# Describes tokens in the OpenAPI document only; authenticate() reads the header itself.
_bearer_scheme = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="Create a token with `keyturn token new` or on the page *Tokens*.",
)


@dataclass(frozen=True)
class RequiredScope:
    """A dependency of routes: the caller, whose token allows this kind of route."""

    kind: str

    def __call__(
        self,
        request: Request,
        _header: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer_scheme)],
    ) -> Caller:
        return self.check(request)

    def check(self, request: Request) -> Caller:
        """Return the caller. Raises as authenticate() does, and InsufficientScopeError."""
        found = authenticate(request, request.app.state.parts)
        found.require_scope(self.kind)
        return found


ReadCaller = Annotated[Caller, Security(RequiredScope("read"), scopes=["read"])]
RequestCaller = Annotated[Caller, Security(RequiredScope("request"), scopes=["request"])]
ApproveCaller = Annotated[Caller, Security(RequiredScope("approve"), scopes=["approve"])]
StopCaller = Annotated[Caller, Security(RequiredScope("stop"), scopes=["request"])]
