"""Verification of one run: the hashes of its entries, and that they are under the signed root.

It reads only the entries of the run and the tiles that lead to the root, so it takes the same time
in a log of ten million entries as in one of ten. `verification` checks the whole log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from bot.audit import change_log, events, inclusion
from bot.audit.change_log import Entry, LogAlteredError
from bot.audit.checkpoints import Checkpoint, is_signed_by
from bot.audit.output_check import get_expired_until
from bot.db import tables
from bot.db.database import Transaction
from bot.db.outputs import hash_with_salt
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
    entries = change_log.list_entries_of_run(tx, run)[:_MAX_ENTRIES]
    numbers = [entry.seq for entry in entries]
    point = change_log.get_newest_checkpoint(tx)
    outputs, erased, output_faults = _verify_outputs(tx, run, entries)
    return RunVerification(
        len(entries),
        min(numbers, default=0),
        max(numbers, default=0),
        point,
        outputs,
        erased,
        [*_iterate_entry_faults(tx, point, entries), *output_faults],
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


def _verify_outputs(
    tx: Transaction, run: int, entries: Sequence[Entry]
) -> tuple[int, int, list[str]]:
    found = tables.output.c
    query = select(found.entry, found.salt, found.text).where(found.run == run)
    kept = {row.entry: row for row in tx.sql.execute(query)}
    may_be_erased = any(entry.kind == events.OutputErased.kind for entry in entries)
    expired = get_expired_until(tx)
    valid, erased, faults = 0, 0, list[str]()
    for entry in entries:
        bound = entry.event.get_fact("output_sha256") if '"output_sha256"' in entry.body else None
        if not bound:
            continue
        row = kept.get(entry.seq)
        if (
            row is not None
            and row.text is not None
            and hash_with_salt(row.salt, row.text) == bound
        ):
            valid += 1
        elif row is not None and row.text is None and (may_be_erased or entry.seq <= expired):
            erased += 1
        else:
            faults.append(f"the output that entry {entry.seq} binds was altered or removed")
    return valid, erased, faults
