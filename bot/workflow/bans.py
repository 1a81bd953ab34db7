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
from bot.policy import Household, Person, Policy
from bot.workflow.approvals import TooLate
from bot.workflow.context import Policies, WorkflowContext
from bot.workflow.requests import InvalidRequest, NoSuchPerson
from bot.workflow.stopping import check_order, check_reason

# How old a door's knowledge of the bans may be.
_FRESH_SECONDS = 2.0


class PolicyWithoutBanned:
    """The policy as it is without those who are banned. Any thread may use it."""

    def __init__(
        self,
        policies: Policies,
        database: Database,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policies, self._database, self._clock = policies, database, clock
        self._lock = threading.Lock()
        self._banned: frozenset[str] | None = None
        self._read = 0.0
        self._made: tuple[Policy, frozenset[str], Policy] | None = None

    def current(self) -> Policy:
        """Return the policy. Raises NoPolicy, and StoreUnavailable before the first look."""
        whole, banned = self._policies.current(), self._now()
        if not banned:
            return whole
        with self._lock:
            if self._made is None or self._made[0] is not whole or self._made[1] != banned:
                self._made = (whole, banned, whole.without(banned))
            return self._made[2]

    def whole(self) -> Policy:
        """Return the policy with those who are banned. Raises NoPolicy."""
        return self._policies.current()

    def forget(self) -> None:
        """Look again the next time: somebody was banned, or let in again, just now."""
        with self._lock:
            self._read = float("-inf")

    def _now(self) -> frozenset[str]:
        with self._lock:
            known, age = self._banned, self._clock() - self._read
        if known is not None and age < _FRESH_SECONDS:
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
            self._banned, self._read = found, began
        return found


def ban_person(
    parts: WorkflowContext,
    person: str,
    *,
    by: str,
    why: str,
    session: str = "",
    factor: bool = True,
) -> None:
    """Shut somebody out. session: of the web, where a second factor may have been shown just
    before. factor: False on the command line, where none can be shown. Raises NotYours,
    StepUpFirst, TooLate and Unfit."""
    why = check_reason(why)
    check_order(parts, by, "ban", session=session, factor=factor)
    if by == person:
        raise InvalidRequest("you cannot shut yourself out: somebody else can")
    policy = parts.policies.current()
    with parts.database.transaction() as tx:
        if person in stops.list_banned_people(tx):
            raise TooLate(f"{policy.name_person(person)} is banned already")
        if policy.person(person) is None:
            raise NoSuchPerson(person)
        stops.add_ban(tx, person, by=by, why=why)
        sessions.end_all_sessions(tx, person)
        # Whoever has their laptop has what lies on it: let in again, they make new ones.
        tokens.revoke_all_tokens(tx, person)
        change_log.append_entry(tx, tokens.BANNED, person=by, who=person, why=why)
    _look_again(parts)


def ban_notice(
    policies: Policies, database: Database, find: Callable[[Household], Person | None]
) -> str:
    """Return what somebody who is banned is told, and "" for anybody else.

    find: whose account it is. Why they are banned is not told: who banned them may say so.
    """
    whole = policies.whole() if isinstance(policies, PolicyWithoutBanned) else policies.current()
    person = find(whole.household)
    if person is None:
        return ""
    with database.reading() as tx:
        held = next((one for one in stops.list_bans(tx) if one.person == person.id), None)
    if held is None:
        return ""
    by = whole.person(held.by)
    since = datetime.fromtimestamp(held.at / 1_000_000, UTC)
    who, ask = (f" by {by.name}", f"{by.name} or ") if by else ("", "")
    return (
        f"You are banned from Keyturn since {since:%Y-%m-%d %H:%M} UTC{who}: nothing was done. "
        f"Ask {ask}an administrator of Keyturn."
    )


def unban_person(
    parts: WorkflowContext, person: str, *, by: str, why: str, session: str = ""
) -> None:
    """Let somebody in again; who banned does not do that alone. session, raises: as of ban()."""
    why = check_reason(why)
    held = _held(parts, person)
    check_order(parts, by, "resume", own=held.by == by, session=session)
    with parts.database.transaction() as tx:
        if not stops.remove_ban(tx, person):
            name = parts.policies.current().name_person(person)
            raise TooLate(f"somebody else has let {name} in again just now")
        change_log.append_entry(
            tx, "ban lifted", person=by, who=person, why=why, banned_by=held.by
        )
    _look_again(parts)


def _held(parts: WorkflowContext, person: str) -> Ban:
    with parts.database.reading() as tx:
        found = next((one for one in stops.list_bans(tx) if one.person == person), None)
    if found is None:
        raise TooLate(f"{parts.policies.current().name_person(person)} is not banned")
    return found


def _look_again(parts: WorkflowContext) -> None:
    if isinstance(parts.policies, PolicyWithoutBanned):
        parts.policies.forget()
