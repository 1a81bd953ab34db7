"""Acknowledge entries that a failover or a restore lost, which witnesses saw."""

from collections.abc import Sequence

from bot.audit import change_log, events
from bot.audit.checkpoints import Checkpoint
from bot.audit.verification import (
    find_loss_of_checkpoint,
    has_entries_of,
    list_losses,
    verify_log,
)
from bot.db.database import Transaction


def acknowledge_loss(
    tx: Transaction,
    witnesses: Sequence[Checkpoint],
    *,
    first: int,
    lost_entries: int,
    person: str,
    reason: str = "",
    login: str = "",
) -> None:
    """Record that a person acknowledges lost entries. The rest of the log has to be intact.

    Raises ValueError unless exactly these entries are in checkpoints of witnesses but not in the
    log.
    """
    change_log.lock_log(tx)
    verdict = verify_log(tx)
    if verdict.broken is not None:
        raise ValueError(f"the log is broken at entry {verdict.broken}: {verdict.why}")
    losses = list_losses(tx)
    seen = sorted(witnesses, key=lambda point: point.size)
    absent = [point for point in seen if not has_entries_of(tx, point)]
    explained = [(point, find_loss_of_checkpoint(losses, point)) for point in absent]
    missing = [(point, loss) for point, loss in explained if not (loss and loss.is_acknowledged)]
    if not missing:
        raise ValueError("the log holds everything that the witnesses saw: nothing was lost")
    (earliest, recorded), (latest, _) = missing[0], missing[-1]
    begin = recorded.first if recorded else min(earliest.size, verdict.entries + 1)
    count = latest.size - begin + 1
    if (first, lost_entries) != (begin, count):
        raise ValueError(
            f"the log lacks {count} entries from {begin} on that witnesses saw. Find out what "
            f"they were, then run `keyturn changelog acknowledge {begin} --lost {count}`"
        )
    change_log.append_entry(
        tx,
        events.LossAcknowledged(first=first, lost=lost_entries, reason=reason, login=login),
        person=person,
    )
