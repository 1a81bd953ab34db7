"""The visitor: who is signed in, looked up in the policy anew with every request."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from bot import observability
from bot.auth import sessions as auth_sessions
from bot.db import stops
from bot.db.database import StoreUnavailable, Transaction
from bot.model.view_rights import Sight
from bot.policy import Person, Policy
from bot.web.deps import Here, WebParts


class SignedOut(Exception):
    """Nobody is signed in. The message says why, where there is more to say."""


@dataclass(frozen=True)
class Visitor:
    """Somebody with a session, and the policy that held when the request came in.

    session: its token, by which a second factor is bound to it.
    """

    person: Person
    policy: Policy
    session: str = field(default="", repr=False)

    @property
    def id(self) -> str:
        return self.person.id

    @property
    def sight(self) -> Sight:
        """What they may view."""
        return self.policy.sight(self.id)

    def name(self, identifier: str) -> str:
        """Return what a person is called; ids of people who have left stay as they are."""
        return self.policy.name_person(identifier)


def _visitor(request: Request, parts: Here) -> Visitor:
    """Return who is there and keep the session alive."""
    return _known(request, parts, keep=True)


def _onlooker(request: Request, parts: Here) -> Visitor:
    """Return who is there for a page that refreshes by itself: that is no sign of life."""
    return _known(request, parts, keep=False)


def still_there(request: Request, parts: WebParts) -> Visitor:
    """Look anew who is there, for what goes on after the request was let in. Raises SignedOut."""
    return _known(request, parts, keep=False)


def _known(request: Request, parts: WebParts, *, keep: bool) -> Visitor:
    with _met(request, parts, keep=keep) as (visitor, _):
        return visitor


def visit(request: Request) -> AbstractContextManager[tuple[Visitor, Transaction]]:
    """Look who is there, and at the database in the same transaction. Raises SignedOut."""
    return _met(request, request.app.state.parts, keep=True)


@contextmanager
def _met(
    request: Request, parts: WebParts, *, keep: bool
) -> Generator[tuple[Visitor, Transaction]]:
    token = request.cookies.get(parts.cookie, "")
    if not token:
        raise SignedOut("")
    with parts.database.reading() as tx:
        session = auth_sessions.find_session(tx, token)
        if session is None:
            raise SignedOut("You were signed out after a while.")
        now, policy = tx.now, parts.policies.current()
        person = policy.person(session.person)
        if person is not None:
            request.state.halt = stops.get_stop_of_everything(tx)
            observability.add_context(person=person.id)
            request.state.visitor = visitor = Visitor(person, policy, token)
            # Whatever is read after this is read for them.
            tx.sight = visitor.sight
            yield visitor, tx
    if person is None:
        with parts.database.transaction() as tx:
            auth_sessions.end_session(tx, token)
        raise SignedOut("You are not among the people of the policy any more.")
    if keep and now - session.last_seen > auth_sessions.NOTE_SECONDS * 1_000_000:
        _keep_alive(parts, token)


def _keep_alive(parts: WebParts, token: str) -> None:
    try:
        with parts.database.transaction() as tx:
            auth_sessions.touch_session(tx, token)
    except StoreUnavailable:
        # A database that takes nothing in can still be read, and that is when people look.
        return


Visiting = Annotated[Visitor, Depends(_visitor)]
Onlooking = Annotated[Visitor, Depends(_onlooker)]
