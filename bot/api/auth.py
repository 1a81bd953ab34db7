"""The caller: whose token a request comes with, looked up anew each time, and what it is for."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from bot import observability
from bot.api.deps import ApiParts
from bot.audit import refusals
from bot.auth import tokens
from bot.auth.tokens import ApiToken
from bot.db import stops
from bot.db.database import StoreUnavailable
from bot.model.run import RequestOrigin
from bot.model.view_rights import ViewRights
from bot.policy import Person, Policy

_SAID = re.compile(r"bearer +(\S+) *", re.ASCII | re.IGNORECASE)

# What a token must be for, of which any will do, so that it may do something.
_FOR = {
    "read": {"read", "ask", "approve"},
    "ask": {"ask"},
    "approve": {"approve"},
    "stop": {"ask", "approve"},
    "metrics": {"metrics"},
}


class NoToken(Exception):
    """The request comes with no token that opens anything. The message says why.

    token: where it is one that we know.
    """

    def __init__(self, why: str, token: ApiToken | None = None) -> None:
        self.prefix = token.prefix if token else ""
        self.whose = token.person if token else ""
        super().__init__(why)


class NotForThat(Exception):
    """The token is for other things. scope: what it would have to be for."""

    def __init__(self, scope: str) -> None:
        self.scope = scope if scope in _FOR[scope] else min(_FOR[scope])
        super().__init__(f"this token is not for that: it takes one with the scope {self.scope}")


class TooFast(Exception):
    """More requests than one token may make. seconds: after which there is room again."""

    def __init__(self, seconds: float) -> None:
        self.seconds = math.ceil(seconds)
        super().__init__(f"too many requests with this token: try it again in {self.seconds} s")


@dataclass(frozen=True)
class Caller:
    """Somebody's program, and the policy that held when the request came in.

    came: when that was, by the database's clock, in microseconds since 1970.
    """

    person: Person
    policy: Policy
    token: ApiToken
    came: int

    @property
    def id(self) -> str:
        return self.person.id

    @property
    def sight(self) -> ViewRights:
        """What they may view."""
        return self.policy.get_view_rights(self.id)

    @property
    def origin(self) -> RequestOrigin:
        return RequestOrigin("api", user=self.token.prefix)

    def must_be_for(self, scope: str) -> None:
        if not _FOR[scope].intersection(self.token.scopes):
            raise NotForThat(scope)


def recognised(request: Request, parts: ApiParts) -> Caller:
    """Return whose token the request comes with. Raises NoToken and TooFast."""
    known: Caller | None = getattr(request.state, "caller", None)
    if known is not None:
        return known
    said = _SAID.fullmatch(request.headers.get("authorization", ""))
    if said is None:
        raise NoToken("come with a token: Authorization: Bearer kt_…; keyturn token new makes one")
    try:
        caller = _known(parts, said[1])
    except NoToken as refused:
        refusals.log_refusal_in_own_transaction(
            parts.database,
            refusals.TOKEN,
            token=refused.prefix,
            owner=refused.whose,
            reason=str(refused),
            source="api",
        )
        raise
    wait = parts.pace.wait(caller.token.id)
    if wait:
        raise TooFast(wait)
    request.state.caller = caller
    observability.add_context(person=caller.person.id)
    return caller


def _known(parts: ApiParts, whole: str) -> Caller:
    with parts.database.reading() as tx:
        token, now = tokens.find_token(tx, whole), tx.now
        # Who was shut out is out at once, in whichever process that was done.
        shut_out = token is not None and token.person in stops.list_banned_people(tx)
    if token is None:
        raise NoToken("this token is not known here")
    if not token.is_active(now):
        why = "this token was revoked" if token.revoked_at else "this token has expired"
        raise NoToken(why, token)
    policy = parts.policies.get_policy()
    person = None if shut_out else policy.find_person(token.person)
    if person is None:
        why = "whose token this is is not among the people of the policy any more"
        raise NoToken(why, token)
    if not tokens.is_use_recorded_recently(token, now):
        _note_use(parts, token)
    return Caller(person, policy, token, now)


def _note_use(parts: ApiParts, token: ApiToken) -> None:
    try:
        with parts.database.transaction() as tx:
            tokens.record_token_use(tx, token)
    except StoreUnavailable:
        # A database that takes nothing in can still be read, and that is when people look.
        return


# It only tells of tokens in the description: who comes with which is looked up above.
_described = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token that `keyturn token new`, or the page *Tokens*, has made.",
)


def _for(scope: str) -> Callable[..., Caller]:
    def caller(
        request: Request,
        _said: Annotated[HTTPAuthorizationCredentials | None, Depends(_described)],
    ) -> Caller:
        found = recognised(request, request.app.state.parts)
        found.must_be_for(scope)
        return found

    return caller


Reading = Annotated[Caller, Security(_for("read"), scopes=["read"])]
Asking = Annotated[Caller, Security(_for("ask"), scopes=["ask"])]
Approving = Annotated[Caller, Security(_for("approve"), scopes=["approve"])]
Stopping = Annotated[Caller, Security(_for("stop"), scopes=["ask"])]
