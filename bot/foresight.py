"""Foresight: an outlook by what the database knows of the person and of the runbook."""

from bot.outlook import Outlook, Question, outlook
from bot.policy import Policy
from bot.store import waits
from bot.store.database import Transaction
from bot.workflow import counting


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
