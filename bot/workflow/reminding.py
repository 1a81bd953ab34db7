"""Reminding: whose approval is waited for hears of it once more, and then the next group too."""

from bot.policy import NoPolicy, Policy
from bot.run import Run, State
from bot.store import changelog, news, runs
from bot.store.database import Transaction
from bot.workflow.counting import count
from bot.workflow.parts import Parts


def remind_due(parts: Parts) -> list[Run]:
    """Remind of every request that has waited for so long, and escalate it after twice as long."""
    try:
        policy = parts.policies.current()
    except NoPolicy:
        # Then nobody could approve, which is told elsewhere.
        return []
    with parts.database.reading() as tx:
        due = [run.id for run in runs.waiting(tx) if _due(parts, tx, run)]
    told: list[Run] = []
    # One transaction each: who holds the log while waiting for a run can block who holds the run.
    for number in due:
        with parts.database.transaction() as tx:
            run = runs.hold(tx, number)
            if run.state is State.WAITING and _due(parts, tx, run):
                told.append(_tell(tx, policy, run))
    return told


def _due(parts: Parts, tx: Transaction, run: Run) -> bool:
    if run.shown is None or run.parent is not None:
        return False
    waited, patience = tx.now - run.shown, run.terms.patience or parts.reminder
    if run.reminded is None:
        return waited >= patience
    return bool(run.terms.escalate) and run.escalated is None and waited >= 2 * patience


def _tell(tx: Transaction, policy: Policy, run: Run) -> Run:
    if run.reminded is None:
        known = runs.amend(tx, run, reminded=tx.now)
    else:
        terms = run.terms.escalated()
        known = runs.amend(tx, run, escalated=tx.now, terms=terms, groups=terms.groups)
    counted = count(tx, policy, known)
    able = policy.approvers(counted.request, counted.ruling)
    people = [person.id for person in able if person.id not in counted.keys]
    changelog.append(
        tx,
        "reminded" if run.reminded is None else "escalated",
        run=run.id,
        host=run.host,
        people=people,
        whose=policy.whose(counted.ruling.terms),
    )
    news.announce(tx, run.id)
    return known
