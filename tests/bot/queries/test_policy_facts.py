"""The policy with what features know: lasting facts are looked up once for each version of it."""

from bot.db.database import Transaction
from bot.model.run import Run
from bot.policy import Policy
from bot.queries.policy_facts import PolicyFacts, PolicyWithFacts
from tests.bot.harness import Harness


class CountedFacts:
    """Facts that count how often they are looked up."""

    def __init__(self, *, is_lasting: bool) -> None:
        self.looked_up = 0
        self.facts = PolicyFacts(lambda _policy: True, self._apply, is_lasting=is_lasting)

    def _apply(self, _tx: Transaction, policy: Policy, _run: Run | None) -> Policy:
        self.looked_up += 1
        return policy


def _read_each_hour(harness: Harness, *counted: CountedFacts) -> PolicyWithFacts:
    hours = iter(range(0, 10**9, 3600)).__next__
    facts = [one.facts for one in counted]
    return PolicyWithFacts(harness.policies, harness.database, facts, clock=hours)


def test_lasting_facts_are_looked_up_once_for_each_version_of_the_policy(harness: Harness):
    lasting = CountedFacts(is_lasting=True)
    known = _read_each_hour(harness, lasting)
    for _ in range(3):
        known.get_policy()
    assert lasting.looked_up == 1
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(f"{rules.read_text()}\n// another version\n")
    known.get_policy()
    assert lasting.looked_up == 2


def test_facts_that_change_are_looked_up_again_and_lasting_ones_with_them(harness: Harness):
    lasting, changing = CountedFacts(is_lasting=True), CountedFacts(is_lasting=False)
    known = _read_each_hour(harness, lasting, changing)
    for _ in range(3):
        known.get_policy()
    assert (lasting.looked_up, changing.looked_up) == (3, 3)
