"""Ban and unban people.

To the policy, a banned person does not exist: no requests, approvals, sessions or
rights. Bans are rows in the database, so that every process sees them. The gate reads them before
every step.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from bot.audit import change_log
from bot.auth import sessions, tokens
from bot.db import stops
from bot.db.database import Database, StoreUnavailable
from bot.db.stops import Ban
from bot.model.errors import InvalidRequestError, NoSuchPersonError, TooLate
from bot.policy import Organisation, Person, Policy, PolicySource
from bot.workflow.context import WorkflowContext
from bot.workflow.stopping import check_order_allowed, check_stop_reason

# How old the list of bans may be in web, Slack and API; the gate reads the table.
_CACHE_SECONDS = 2.0


class PolicyWithoutBanned:
    """Provides the policy without the people who are banned. Thread-safe."""

    def __init__(
        self,
        policies: PolicySource,
        database: Database,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policies, self._database, self._clock = policies, database, clock
        self._lock = threading.Lock()
        self._banned: frozenset[str] | None = None
        self._read_at = 0.0
        self._cached: tuple[Policy, frozenset[str], Policy] | None = None

    def get_policy(self) -> Policy:
        """Return the policy. Raises NoPolicyError, and StoreUnavailable before the first read."""
        policy, banned = self._policies.get_policy(), self._read_banned_people()
        if not banned:
            return policy
        with self._lock:
            if self._cached is None or self._cached[0] is not policy or self._cached[1] != banned:
                self._cached = (policy, banned, policy.without_people(banned))
            return self._cached[2]

    def get_policy_with_banned(self) -> Policy:
        """Return the policy including banned people. Raises NoPolicyError."""
        return self._policies.get_policy()

    def forget_banned_people(self) -> None:
        """Read the bans again at the next use: one was added or lifted just now."""
        with self._lock:
            self._read_at = float("-inf")

    def _read_banned_people(self) -> frozenset[str]:
        with self._lock:
            known, age = self._banned, self._clock() - self._read_at
        if known is not None and age < _CACHE_SECONDS:
            return known
        began = self._clock()
        try:
            with self._database.reading() as tx:
                found = stops.list_banned_people(tx)
        except StoreUnavailable:
            # Without a database the gate lets nothing through; pages can still be read.
            if known is None:
                raise
            return known
        with self._lock:
            self._banned, self._read_at = found, began
        return found


def ban_person(
    context: WorkflowContext,
    person: str,
    *,
    banned_by: str,
    reason: str,
    session: str = "",
    requires_factor: bool = True,
) -> None:
    """Ban a person: end their sessions and revoke their tokens.

    Args:
        session: The web session, in which a second factor may have been entered.
        requires_factor: False on the command line, where none can be entered.

    Raises NotAllowed, StepUpRequired, TooLate and InvalidRequestError.
    """
    reason = check_stop_reason(reason)
    check_order_allowed(
        context, banned_by, "ban", session=session, requires_factor=requires_factor
    )
    if banned_by == person:
        raise InvalidRequestError("you cannot ban yourself: ask someone else to do it")
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        if person in stops.list_banned_people(tx):
            raise TooLate(f"{policy.get_person_name(person)} is banned already")
        if policy.find_person(person) is None:
            raise NoSuchPersonError(person)
        stops.add_ban(tx, person, by=banned_by, why=reason)
        sessions.end_all_sessions(tx, person)
        # Tokens may be on a stolen laptop, so they stay revoked after the ban is lifted.
        tokens.revoke_all_tokens(tx, person)
        change_log.append_entry(
            tx, tokens.BANNED, person=banned_by, banned_person=person, reason=reason
        )
    _forget_banned_people(context)


def describe_ban(
    policies: PolicySource,
    database: Database,
    find_person: Callable[[Organisation], Person | None],
) -> str:
    """Return the message for a banned person; "" for anyone else.

    The message leaves the reason out. find_person: finds the person of the account.
    """
    policy = (
        policies.get_policy_with_banned()
        if isinstance(policies, PolicyWithoutBanned)
        else policies.get_policy()
    )
    person = find_person(policy.organisation)
    if person is None:
        return ""
    with database.reading() as tx:
        ban = next((one for one in stops.list_bans(tx) if one.person == person.id), None)
    if ban is None:
        return ""
    by = policy.find_person(ban.banned_by)
    since = datetime.fromtimestamp(ban.banned_at / 1_000_000, UTC)
    who, ask = (f" by {by.name}", f"{by.name} or ") if by else ("", "")
    return (
        f"You have been banned from Keyturn since {since:%Y-%m-%d %H:%M} UTC{who}. Nothing was "
        f"done. Contact {ask}a Keyturn administrator."
    )


def unban_person(
    context: WorkflowContext, person: str, *, unbanned_by: str, reason: str, session: str = ""
) -> None:
    """Lift a ban. The person who imposed it cannot. session, raises: as for ban_person()."""
    reason = check_stop_reason(reason)
    ban = _get_ban(context, person)
    check_order_allowed(
        context, unbanned_by, "resume", is_own=ban.banned_by == unbanned_by, session=session
    )
    with context.database.transaction() as tx:
        if not stops.remove_ban(tx, person):
            name = context.policies.get_policy().get_person_name(person)
            raise TooLate(f"someone else has just unbanned {name}")
        change_log.append_entry(
            tx,
            "ban lifted",
            person=unbanned_by,
            banned_person=person,
            reason=reason,
            banned_by=ban.banned_by,
        )
    _forget_banned_people(context)


def _get_ban(context: WorkflowContext, person: str) -> Ban:
    with context.database.reading() as tx:
        found = next((one for one in stops.list_bans(tx) if one.person == person), None)
    if found is None:
        raise TooLate(f"{context.policies.get_policy().get_person_name(person)} is not banned")
    return found


def _forget_banned_people(context: WorkflowContext) -> None:
    if isinstance(context.policies, PolicyWithoutBanned):
        context.policies.forget_banned_people()
