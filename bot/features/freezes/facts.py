"""The freezes that people ordered, as facts of the policy."""

from bot.db.database import Transaction
from bot.features.freezes import rows
from bot.model.run import Run, State
from bot.policy import Policy
from bot.queries.policy_facts import PolicyFacts


def apply_freezes(tx: Transaction, policy: Policy, run: Run | None = None) -> Policy:
    """Return the policy with the freezes of now, or those by which the gate judges a run.

    A running run is judged by those of its start, so that a freeze interrupts nothing.
    """
    begun_by = run.started_at if run and run.state is State.RUNNING else None
    found = (one.build_freeze(policy) for one in rows.list_active(tx, begun_by=begun_by))
    return policy.with_ordered_freezes([one for one in found if one])


FACTS = PolicyFacts(matter_to=lambda _policy: True, apply=apply_freezes)
