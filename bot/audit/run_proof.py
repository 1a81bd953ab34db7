"""Verification of one run: the hashes of its entries, and that they are under the signed root.

It reads only the entries of the run and the tiles that lead to the root, so it takes the same time
in a log of ten million entries as in one of ten. `verification` checks the whole log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.audit import change_log, inclusion
from bot.audit.change_log import Entry, LogAlteredError
from bot.audit.checkpoints import Checkpoint, is_signed_by
from bot.audit.output_check import BINDING_MARK, check_outputs
from bot.db.database import Transaction
from bot.model.merkle import Tree

# Of a run with more entries, only the first are verified.
_MAX_ENTRIES = 5000


@dataclass(frozen=True)
class RunVerification:
    """The result of the verification of one run."""

    entries: int
    """How many entries were verified."""
    first_entry: int
    last_entry: int
    checkpoint: Checkpoint | None
    """The newest checkpoint, whose root covers them."""
    valid_outputs: int
    """How many outputs have the hash in their entry."""
    erased_outputs: int
    """How many outputs were erased, as the log records."""
    faults: Sequence[str]
    """What is wrong, one sentence each, in the order of the log; empty if all is intact."""


def verify_run(tx: Transaction, run: int) -> RunVerification:
    """Return what is wrong with the entries and the output of a run."""
    entries = change_log.list_entries_of_run(tx, run)
    bound = sum(BINDING_MARK in entry.body for entry in entries)
    checked = [*check_outputs(tx, bound, run=run)] if entries else []
    entries = entries[:_MAX_ENTRIES]
    numbers = [entry.seq for entry in entries]
    point = change_log.get_newest_checkpoint(tx)
    return RunVerification(
        len(entries),
        min(numbers, default=0),
        max(numbers, default=0),
        point,
        sum(not why and not is_erased for _, why, is_erased in checked),
        sum(not why and is_erased for _, why, is_erased in checked),
        [*_iterate_entry_faults(tx, point, entries), *(why for _, why, _ in checked if why)],
    )


def _iterate_entry_faults(
    tx: Transaction, point: Checkpoint | None, entries: Sequence[Entry]
) -> Iterable[str]:
    for entry in entries:
        if not change_log.is_hash_valid(list(vars(entry).values())):
            yield f"entry {entry.seq} was altered: its content does not have its hash"
    if tx.stamping is not None and not (point and is_signed_by(point, tx.stamping.public_key)):
        yield "the newest checkpoint is not signed by the key of the log"
        return
    try:
        tree = change_log.build_tree_of(tx, point) if point else Tree()
        included = {one.seq for one in inclusion.list_included_entries(tx, tree, entries)}
    except LogAlteredError as error:
        yield error.reason
        return
    for entry in entries:
        if entry.seq not in included:
            yield f"entry {entry.seq} is not under the signed root"
