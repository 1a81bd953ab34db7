"""Foresight: an outlook by what the database knows of the person and of the runbook."""

from bot.db import stats
from bot.db.database import Transaction
from bot.policy import Policy
from bot.policy.explain import Preview, PreviewQuestion, preview_question
from bot.workflow import approval_count
from runbooks._catalogue import get_kind


def preview_request(
    tx: Transaction, policy: Policy, meant: PreviewQuestion, *, person: str, door: str
) -> Preview:
    """Return what would come of a request that this person has not made."""
    words = meant.runbook.words
    return preview_question(
        policy,
        meant,
        person=person,
        door=door,
        now=tx.now,
        novel=approval_count.is_first_success(tx, policy, person=person, words=words),
        wait=stats.get_usual_wait(tx, words),
    )


def preview_evident(
    policy: Policy, meant: PreviewQuestion, *, person: str, door: str, now: int
) -> Preview | None:
    """Return it where nothing that the database knows matters: of what is done at once; or None.

    now: microseconds since 1970, by the database's clock.
    """
    if get_kind(meant.runbook) != "check" or "novel" in policy.mentioned:
        return None
    seen = preview_question(policy, meant, person=person, door=door, now=now)
    return seen if seen.at_once else None
