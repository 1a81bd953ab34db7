"""The signed-in user, looked up in the policy with every request."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from bot import observability
from bot.auth import sessions as auth_sessions
from bot.db import stops
from bot.db.database import StoreUnavailable, Transaction
from bot.model.view_rights import ViewRights
from bot.policy import Person, Policy
from bot.web.deps import WebDependencies


class NotSignedInError(Exception):
    """No one is signed in. The message says why, or is empty."""


@dataclass(frozen=True)
class User:
    """A signed-in person, with the policy at the time of the request."""

    person: Person
    policy: Policy
    session_token: str = field(default="", repr=False)
    """A confirmed second factor is bound to this token."""

    @property
    def id(self) -> str:
        return self.person.id

    @property
    def view_rights(self) -> ViewRights:
        """What the user may view."""
        return self.policy.get_view_rights(self.id)

    def get_person_name(self, person_id: str) -> str:
        """Return the name of a person, or the id if they are no longer in the policy."""
        return self.policy.get_person_name(person_id)


def _get_user(request: Request) -> User:
    """Return the user and keep the session alive."""
    with open_visit(request) as (user, _):
        return user


def check_still_signed_in(request: Request) -> User:
    """Return the user of a long request, as of now, without keeping the session alive.

    Raises:
        NotSignedInError: The session has ended, or the person is no longer in the policy.
    """
    with open_visit(request, refresh_session=False) as (user, _):
        return user


@contextmanager
def open_visit(
    request: Request, *, refresh_session: bool = True
) -> Generator[tuple[User, Transaction]]:
    """Load the user and open a transaction that reads what they may view.

    Raises:
        NotSignedInError: No one is signed in.
    """
    deps: WebDependencies = request.app.state.deps
    token = request.cookies.get(deps.cookie_name, "")
    if not token:
        raise NotSignedInError("")
    with deps.database.reading() as tx:
        session = auth_sessions.find_session(tx, token)
        if session is None:
            raise NotSignedInError("Your session has expired.")
        now, policy = tx.now, deps.policies.get_policy()
        person = policy.find_person(session.person)
        if person is not None:
            request.state.active_stop = stops.get_stop_of_everything(tx)
            observability.add_context(person=person.id)
            request.state.user = user = User(person, policy, token)
            # From here on, reads are limited to what the user may view.
            tx.view_rights = user.view_rights
            yield user, tx
    if person is None:
        with deps.database.transaction() as tx:
            auth_sessions.end_session(tx, token)
        raise NotSignedInError("You are no longer in the policy.")
    if (
        refresh_session
        # A list that updates by itself does not keep the session alive.
        and "x-keyturn-live" not in request.headers
        and now - session.last_seen_at > auth_sessions.LAST_SEEN_PRECISION_SECONDS * 1_000_000
    ):
        _refresh_session(deps, token)


def _refresh_session(deps: WebDependencies, token: str) -> None:
    try:
        with deps.database.transaction() as tx:
            auth_sessions.touch_session(tx, token)
    except StoreUnavailable:
        # A read-only database is no reason to refuse pages: people need them then.
        return


CurrentUser = Annotated[User, Depends(_get_user)]
PassiveUser = Annotated[User, Depends(check_still_signed_in)]
