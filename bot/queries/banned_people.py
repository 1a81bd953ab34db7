"""The policy without the people who are banned, and the message for a banned person."""

import threading
import time
from collections.abc import Callable

from bot.db import stops
from bot.db.database import Database, StoreUnavailable
from bot.model.times import to_datetime
from bot.policy import Organisation, Person, Policy, PolicySource
from bot.queries.policy_facts import PolicyWithFacts

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

    def forget_facts(self) -> None:
        """Read what features know again at the next use: some of it has changed just now."""
        if isinstance(self._policies, PolicyWithFacts):
            self._policies.forget_facts()

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
    since = to_datetime(ban.banned_at)
    who, ask = (f" by {by.name}", f"{by.name} or ") if by else ("", "")
    return (
        f"You have been banned from Keyturn since {since:%Y-%m-%d %H:%M} UTC{who}. Nothing was "
        f"done. Contact {ask}a Keyturn administrator."
    )
