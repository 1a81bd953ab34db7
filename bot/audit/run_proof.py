"""Verification of one run: hashes, signatures and neighbours of its entries in the change log.

It reads only the entries of the run and those directly before and after them, so it takes the same
time in a log of ten million entries as in one of ten. `verification` checks the whole log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from bot.audit import change_log, events
from bot.audit.change_log import GENESIS, Entry
from bot.audit.output import hash_with_salt
from bot.db import tables
from bot.db.database import Transaction
from bot.model import signing

# Of a run with more entries, only the first are verified.
_MAX_ENTRIES = 5000
_BATCH_SIZE = 500


@dataclass(frozen=True)
class RunVerification:
    """The result of the verification of one run."""

    entries: int
    """How many entries were verified."""
    first_entry: int
    last_entry: int
    keys: Sequence[str]
    """The public keys that signed them."""
    valid_outputs: int
    """How many outputs have the hash in their entry."""
    erased_outputs: int
    """How many outputs were erased, as the log records."""
    faults: Sequence[str]
    """What is wrong, one sentence each, in the order of the log; empty if all is intact."""


def verify_run(tx: Transaction, run: int) -> RunVerification:
    entries = change_log.list_entries_of_run(tx, run)[:_MAX_ENTRIES]
    neighbours = _load_neighbours(tx, entries)
    keys = change_log.list_keys(tx)
    if tx.stamping is not None and keys and keys[-1][1] != tx.stamping.public_key:
        # A log whose last key is not ours proves nothing.
        keys = []
    faults: list[str] = []
    for entry in entries:
        faults += _iterate_entry_faults(
            entry, neighbours, change_log.find_key_of_entry(keys, entry.seq)
        )
    outputs, erased, output_faults = _verify_outputs(tx, run, entries)
    numbers = [entry.seq for entry in entries]
    return RunVerification(
        len(entries),
        min(numbers, default=0),
        max(numbers, default=0),
        tuple(dict.fromkeys(change_log.find_key_of_entry(keys, number) for number in numbers)),
        outputs,
        erased,
        [*faults, *output_faults],
    )


def _iterate_entry_faults(entry: Entry, neighbours: dict[int, Entry], key: str) -> Iterable[str]:
    before, after = neighbours.get(entry.seq - 1), neighbours.get(entry.seq + 1)
    if change_log.hash_entry(list(vars(entry).values())) != entry.hash:
        yield f"entry {entry.seq} was altered: its content does not have its hash"
    if entry.seq > 1 and before is None:
        yield f"entry {entry.seq - 1}, the one before entry {entry.seq}, is missing"
    elif entry.prev != (before.hash if before else GENESIS):
        yield f"entry {entry.seq} does not follow the one before it"
    if after is not None and after.prev != entry.hash:
        yield f"entry {after.seq} does not follow entry {entry.seq}"
    if not (key and signing.is_signature_valid(key, entry.hash, entry.signature)):
        yield f"entry {entry.seq} is not signed by the key that was in use then"


def _load_neighbours(tx: Transaction, entries: Sequence[Entry]) -> dict[int, Entry]:
    """Return the entries and those directly before and after each, by number."""
    wanted = sorted({seq + step for seq in (e.seq for e in entries) for step in (-1, 0, 1)})
    found: dict[int, Entry] = {}
    for first in range(0, len(wanted), _BATCH_SIZE):
        some = tables.entry.c.seq.in_(wanted[first : first + _BATCH_SIZE])
        rows = tx.sql.execute(select(tables.entry).where(some))
        found |= {row.seq: Entry(*row) for row in rows}
    return found


def _verify_outputs(
    tx: Transaction, run: int, entries: Sequence[Entry]
) -> tuple[int, int, list[str]]:
    found = tables.output.c
    query = select(found.entry, found.salt, found.text).where(found.run == run)
    kept = {row.entry: row for row in tx.sql.execute(query)}
    may_be_erased = any(entry.kind == events.OutputErased.kind for entry in entries)
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
        elif row is not None and row.text is None and may_be_erased:
            erased += 1
        else:
            faults.append(f"the output that entry {entry.seq} binds was altered or removed")
    return valid, erased, faults
