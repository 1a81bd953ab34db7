"""Foresight: an outlook by what the database knows of the person and of the runbook."""

from bot.outlook import Outlook, Question, outlook
from bot.policy import Policy
from bot.store import waits
from bot.store.database import Transaction
from bot.workflow import counting
from runbooks._catalogue import kind


def foresee(
    tx: Transaction, policy: Policy, meant: Question, *, person: str, door: str
) -> Outlook:
    """Return what would come of a request that this person has not made."""
    words = meant.runbook.words
    return outlook(
        policy,
        meant,
        person=person,
        door=door,
        now=tx.now,
        novel=counting.novel(tx, policy, person=person, words=words),
        wait=waits.usual_wait(tx, words),
    )


def evident(
    policy: Policy, meant: Question, *, person: str, door: str, now: int
) -> Outlook | None:
    """Return it where nothing that the database knows matters: of what is done at once; or None.

    now: microseconds since 1970, by the database's clock.
    """
    if kind(meant.runbook) != "check" or "novel" in policy.mentioned:
        return None
    seen = outlook(policy, meant, person=person, door=door, now=now)
    return seen if seen.at_once else None
