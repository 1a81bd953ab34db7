"""People on duty, for tests: by a calendar of the edge, and by what a test says."""

from collections.abc import Sequence
from pathlib import Path

from bot.db.database import Database
from bot.policy import Policy, PolicyDirectory
from bot.policy.oncall import Duty
from bot.queries.policy_facts import PolicyFacts, PolicyWithFacts


def add_calendar(directory: Path) -> None:
    """Let a policy have a calendar of the edge, and give each person an address."""
    people = directory / "people.yaml"
    text = people.read_text()
    for name in ("dora", "olga", "adam", "stan"):
        text = text.replace(f"  {name}: {{", f"  {name}: {{email: {name}@example.com, ")
    people.write_text(text)
    (directory / "oncall.yaml").write_text("oncall:\n  edge: {file: edge.ics, areas: [edge]}\n")


def build_duties(**duties: Duty) -> PolicyFacts:
    """Return the fact that people are on duty, by calendar."""
    return PolicyFacts(
        matter_to=lambda policy: bool(policy.calendars),
        apply=lambda _tx, policy, _run: policy.with_duties(duties),
    )


_OF_FREEZES = "bot.features.freezes.facts"


class KnownPolicy(PolicyDirectory):
    """A policy directory with facts that are looked up each time, if there are any.

    has_ordered_freezes: whether a test orders freezes. Nothing in the policy tells, and all other
    tests need not ask the database each time.
    """

    has_ordered_freezes = False

    def __init__(
        self, policies: PolicyDirectory, database: Database, facts: Sequence[PolicyFacts]
    ) -> None:
        super().__init__(policies.path)
        # Each look at this clock is three seconds later, so nothing is cached.
        ticks = iter(range(0, 10**9, 3)).__next__
        others = [one for one in facts if one.apply.__module__ != _OF_FREEZES]
        self._with_freezes = PolicyWithFacts(policies, database, facts, clock=ticks)
        self._without_freezes = PolicyWithFacts(policies, database, others, clock=ticks)

    def get_policy(self) -> Policy:
        known = self._with_freezes if self.has_ordered_freezes else self._without_freezes
        return known.get_policy()


def with_facts(policies: PolicyDirectory, database: Database, *facts: PolicyFacts) -> KnownPolicy:
    """Return the policy with facts that are looked up each time."""
    return KnownPolicy(policies, database, facts)
