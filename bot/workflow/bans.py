"""Banning: somebody is shut out at once and everywhere, until it is taken back.

Who is banned is nobody to the policy: no request, no key, no session, no right. The bans are rows
in the database, so every process sees them; the gate reads them anew before every step.
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

# How old a door's knowledge of the bans may be.
_CACHE_SECONDS = 2.0


class PolicyWithoutBanned:
    """The policy as it is without those who are banned. Any thread may use it."""

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
        """Return the policy. Raises NoPolicy, and StoreUnavailable before the first look."""
        whole, banned = self._policies.get_policy(), self._read_banned_people()
        if not banned:
            return whole
        with self._lock:
            if self._cached is None or self._cached[0] is not whole or self._cached[1] != banned:
                self._cached = (whole, banned, whole.without_people(banned))
            return self._cached[2]

    def get_policy_with_banned(self) -> Policy:
        """Return the policy with those who are banned. Raises NoPolicy."""
        return self._policies.get_policy()

    def forget_banned_people(self) -> None:
        """Look again the next time: somebody was banned, or let in again, just now."""
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
            # Without a database nobody can be let through the gate; pages can still be read.
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
    """Shut somebody out. session: of the web, where a second factor may have been shown just
    before. factor: False on the command line, where none can be shown. Raises NotYours,
    StepUpFirst, TooLate and Unfit."""
    reason = check_stop_reason(reason)
    check_order_allowed(
        context, banned_by, "ban", session=session, requires_factor=requires_factor
    )
    if banned_by == person:
        raise InvalidRequestError("you cannot shut yourself out: somebody else can")
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        if person in stops.list_banned_people(tx):
            raise TooLate(f"{policy.get_person_name(person)} is banned already")
        if policy.find_person(person) is None:
            raise NoSuchPersonError(person)
        stops.add_ban(tx, person, by=banned_by, why=reason)
        sessions.end_all_sessions(tx, person)
        # Whoever has their laptop has what lies on it: let in again, they make new ones.
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
    """Return what somebody who is banned is told, and "" for anybody else.

    find: whose account it is. Why they are banned is not told: who banned them may say so.
    """
    whole = (
        policies.get_policy_with_banned()
        if isinstance(policies, PolicyWithoutBanned)
        else policies.get_policy()
    )
    person = find_person(whole.organisation)
    if person is None:
        return ""
    with database.reading() as tx:
        held = next((one for one in stops.list_bans(tx) if one.person == person.id), None)
    if held is None:
        return ""
    by = whole.find_person(held.banned_by)
    since = datetime.fromtimestamp(held.at / 1_000_000, UTC)
    who, ask = (f" by {by.name}", f"{by.name} or ") if by else ("", "")
    return (
        f"You are banned from Keyturn since {since:%Y-%m-%d %H:%M} UTC{who}: nothing was done. "
        f"Ask {ask}an administrator of Keyturn."
    )


def unban_person(
    context: WorkflowContext, person: str, *, unbanned_by: str, reason: str, session: str = ""
) -> None:
    """Let somebody in again; who banned does not do that alone. session, raises: as of ban()."""
    reason = check_stop_reason(reason)
    held = _get_ban(context, person)
    check_order_allowed(
        context, unbanned_by, "resume", is_own=held.banned_by == unbanned_by, session=session
    )
    with context.database.transaction() as tx:
        if not stops.remove_ban(tx, person):
            name = context.policies.get_policy().get_person_name(person)
            raise TooLate(f"somebody else has let {name} in again just now")
        change_log.append_entry(
            tx,
            "ban lifted",
            person=unbanned_by,
            banned_person=person,
            reason=reason,
            banned_by=held.banned_by,
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
