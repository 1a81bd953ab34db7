"""Preview a request: what it would need, without making it."""

from bot.db import stats
from bot.db.database import Transaction
from bot.policy import Policy
from bot.policy.explain import Preview, PreviewQuestion, evaluate_preview
from bot.queries import approval_count
from runbooks._catalogue import get_kind


def preview_request(
    tx: Transaction, policy: Policy, question: PreviewQuestion, *, person: str, source: str
) -> Preview:
    """Return what a request by this person would need."""
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
    """Return the preview of a check that runs immediately, without a query; None for others.

    now: microseconds since 1970, by the database's clock.
    """
    if get_kind(question.runbook) != "check" or "first_time" in policy.mentions:
        return None
    preview = evaluate_preview(policy, question, person=person, source=source, now=now)
    return preview if preview.needs_no_approval else None
