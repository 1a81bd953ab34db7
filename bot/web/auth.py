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
from bot.model.view_rights import ViewRights
from bot.policy import Person, Policy
from bot.web.deps import WebDependencies, WebDeps


class NotSignedInError(Exception):
    """Nobody is signed in. The message says why, where there is more to say."""


@dataclass(frozen=True)
class Visitor:
    """Somebody with a session, and the policy that held when the request came in.

    session: its token, by which a second factor is bound to it.
    """

    person: Person
    policy: Policy
    session_token: str = field(default="", repr=False)

    @property
    def id(self) -> str:
        return self.person.id

    @property
    def view_rights(self) -> ViewRights:
        """What they may view."""
        return self.policy.get_view_rights(self.id)

    def get_person_name(self, person_id: str) -> str:
        """Return what a person is called; ids of people who have left stay as they are."""
        return self.policy.get_person_name(person_id)


def _get_visitor(request: Request, parts: WebDeps) -> Visitor:
    """Return who is there and keep the session alive."""
    return _load_visitor(request, parts, refresh_session=True)


def _get_visitor_without_refresh(request: Request, parts: WebDeps) -> Visitor:
    """Return who is there for a page that refreshes by itself: that is no sign of life."""
    return _load_visitor(request, parts, refresh_session=False)


def check_still_signed_in(request: Request, parts: WebDependencies) -> Visitor:
    """Look anew who is there, for what goes on after the request was let in. Raises SignedOut."""
    return _load_visitor(request, parts, refresh_session=False)


def _load_visitor(request: Request, parts: WebDependencies, *, refresh_session: bool) -> Visitor:
    with _open_visit(request, parts, refresh_session=refresh_session) as (visitor, _):
        return visitor


def open_visit(request: Request) -> AbstractContextManager[tuple[Visitor, Transaction]]:
    """Look who is there, and at the database in the same transaction. Raises SignedOut."""
    return _open_visit(request, request.app.state.parts, refresh_session=True)


@contextmanager
def _open_visit(
    request: Request, parts: WebDependencies, *, refresh_session: bool
) -> Generator[tuple[Visitor, Transaction]]:
    token = request.cookies.get(parts.cookie_name, "")
    if not token:
        raise NotSignedInError("")
    with parts.database.reading() as tx:
        session = auth_sessions.find_session(tx, token)
        if session is None:
            raise NotSignedInError("You were signed out after a while.")
        now, policy = tx.now, parts.policies.get_policy()
        person = policy.find_person(session.person)
        if person is not None:
            request.state.halt = stops.get_stop_of_everything(tx)
            observability.add_context(person=person.id)
            request.state.visitor = visitor = Visitor(person, policy, token)
            # Whatever is read after this is read for them.
            tx.sight = visitor.view_rights
            yield visitor, tx
    if person is None:
        with parts.database.transaction() as tx:
            auth_sessions.end_session(tx, token)
        raise NotSignedInError("You are not among the people of the policy any more.")
    if (
        refresh_session
        and now - session.last_seen_at > auth_sessions.LAST_SEEN_PRECISION_SECONDS * 1_000_000
    ):
        _refresh_session(parts, token)


def _refresh_session(parts: WebDependencies, token: str) -> None:
    try:
        with parts.database.transaction() as tx:
            auth_sessions.touch_session(tx, token)
    except StoreUnavailable:
        # A database that takes nothing in can still be read, and that is when people look.
        return


CurrentVisitor = Annotated[Visitor, Depends(_get_visitor)]
PassiveVisitor = Annotated[Visitor, Depends(_get_visitor_without_refresh)]
