"""Foresight: an outlook by what the database knows of the person and of the runbook."""

from bot.db import stats
from bot.db.database import Transaction
from bot.policy import Policy
from bot.policy.explain import Preview, PreviewQuestion, evaluate_preview
from bot.workflow import approval_count
from runbooks._catalogue import get_kind


def preview_request(
    tx: Transaction, policy: Policy, question: PreviewQuestion, *, person: str, source: str
) -> Preview:
    """Return what would come of a request that this person has not made."""
    words = question.runbook.words
    return evaluate_preview(
        policy,
        question,
        person=person,
        source=source,
        now=tx.now,
        is_first_success=approval_count.is_first_success(tx, policy, person=person, runbook=words),
        usual_wait=stats.get_usual_wait(tx, words),
    )


def preview_without_database(
    policy: Policy, question: PreviewQuestion, *, person: str, source: str, now: int
) -> Preview | None:
    """Return it where nothing that the database knows matters: of what is done at once; or None.

    now: microseconds since 1970, by the database's clock.
    """
    if get_kind(question.runbook) != "check" or "first_time" in policy.mentions:
        return None
    seen = evaluate_preview(policy, question, person=person, source=source, now=now)
    return seen if seen.needs_no_approval else None
