"""The policy with what features know now, such as who is on duty."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bot.db.database import Database, StoreUnavailable, Transaction
from bot.model.run import Run
from bot.policy import Policy, PolicySource

# How old the facts may be in web, Slack and API; the gate reads the tables.
_CACHE_SECONDS = 2.0


@dataclass(frozen=True)
class PolicyFacts:
    """What a feature adds to the policy."""

    matter_to: Callable[[Policy], bool]
    """Returns whether a policy asks for them."""
    apply: Callable[[Transaction, Policy, Run | None], Policy]
    """Returns the policy with the facts of now, or those by which a run is judged."""
    is_lasting: bool = False
    """Whether they stay the same as long as the policy does."""
    max_age_seconds: float = _CACHE_SECONDS
    """How old they may be in web, Slack and API."""


def apply_facts(
    facts: Sequence[PolicyFacts], tx: Transaction, policy: Policy, run: Run | None = None
) -> Policy:
    """Return the policy with the facts of now, or those by which the gate judges a run."""
    for one in facts:
        if one.matter_to(policy):
            policy = one.apply(tx, policy, run)
    return policy


class PolicyWithFacts:
    """Provides the policy with the facts of now. Thread-safe.

    clock: returns seconds that only pass.
    """

    def __init__(
        self,
        policies: PolicySource,
        database: Database,
        facts: Sequence[PolicyFacts],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policies, self._database, self._facts = policies, database, facts
        self._clock, self._lock = clock, threading.Lock()
        self._cached: tuple[Policy, Policy] | None = None
        self._read_at = 0.0

    def forget_facts(self) -> None:
        """Read the facts again at the next use: one has changed just now."""
        with self._lock:
            self._read_at = float("-inf")

    def get_policy(self) -> Policy:
        """Return the policy. Raises NoPolicyError."""
        policy, began = self._policies.get_policy(), self._clock()
        wanted = [one for one in self._facts if one.matter_to(policy)]
        if not wanted:
            return policy
        are_lasting = all(one.is_lasting for one in wanted)
        max_age = min(one.max_age_seconds for one in wanted)
        with self._lock:
            known = self._cached[1] if self._cached and self._cached[0] is policy else None
            age = began - self._read_at
            if known is not None and (are_lasting or age < max_age):
                return known
        try:
            with self._database.reading() as tx:
                found = apply_facts(self._facts, tx, known or policy)
        except StoreUnavailable:
            # No fact is known, and the gate lets nothing through without a database.
            return policy
        with self._lock:
            self._cached, self._read_at = (policy, found), began
        return found
