"""Verification of the change log: every hash, every link, the seal, and what witnesses saw."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from bot.store import changelog, output, seal
from bot.store.changelog import GENESIS, Entry
from bot.store.database import Database, Transaction
from bot.store.seal import Seal
from bot.store.stages import Stages, counted, untold
from bot.store.witness import Checkpoint

KEY = changelog.KEY
# A backup was put back: what came after it is lost, and witnesses may have seen it.
RESTORED = "restored"
# The members of a row that each one is looked at for, by their place, which is quickest; and of
# which types all of them are: those of Entry.
_KIND, _BODY, _HASH = 2, 6, 8
_NUMBER_OR_NONE = (int, type(None))
_LOOKED_AT = 1000
_UNSIGNED = "is not signed by the key of the log"
_AT_IT = Lock()


class AtItAlready(Exception):
    """Somebody is having the whole log verified just now."""


@dataclass(frozen=True)
class Verdict:
    """The outcome. broken: the first sequence number that does not fit; None if all is well.

    entries, head: how far the log is whole, and the hash there. key: who sealed it last; keys: all
    who did, one after the other, each named by the one before. lost: how many checkpoints of
    witnesses are of entries that were lost, as the log itself says, when a backup was put back.
    """

    entries: int
    head: str
    key: str = ""
    broken: int | None = None
    why: str = ""
    keys: tuple[str, ...] = ()
    lost: int = 0


def open_log(tx: Transaction) -> None:
    """Begin a new log with its key, or see that an old one was sealed by ours.

    Raises BadKey if it was another's: what we would add could not be verified.
    """
    # Of several that begin at once, one names the key.
    changelog.keep_others_out(tx)
    if not check_key(tx, tx.seal):
        changelog.append(tx, KEY, public=tx.seal.public)


def check_key(tx: Transaction, ours: Seal) -> bool:
    """Say whether the log has a key. Raises BadKey if that is not ours."""
    last = changelog.last_of_kind(tx, KEY)
    if last is not None and _public(last) != ours.public:
        raise seal.BadKey(
            f"the change log is sealed by the key {_public(last)[:16]}…, and ours is "
            f"{ours.public[:16]}…: put the right changelog.key back, from the backup of its day"
        )
    return last is not None


def rotate(tx: Transaction, new: Seal) -> None:
    """Name the key that seals the log from the next entry on, and show that we have it.

    The new key vouches for all that is there: so it has to end in what the old one has signed.
    Raises BadKey where it does not.
    """
    verdict = verify_tail(tx, most=_LOOKED_AT)
    if verdict.broken is not None or verdict.key != tx.seal.public:
        raise seal.BadKey(
            f"the change log is broken ({verdict.why or 'another key seals it'}): no other key "
            "vouches for it. `keyturn changelog verify` tells where that began"
        )
    _, head = changelog.head(tx)
    changelog.append(tx, KEY, public=new.public, proof=new.sign(head))


def checkpoint(tx: Transaction) -> Checkpoint:
    seq, head = changelog.head(tx)
    return Checkpoint(seq, head, tx.now, tx.seal.public, tx.seal.sign(head))


def checkpoint_at(tx: Transaction, entry: Entry) -> Checkpoint:
    """Return how far the log is with an entry that this transaction has appended."""
    return Checkpoint(entry.seq, entry.hash, entry.at, tx.seal.public, entry.signature)


def verify(
    tx: Transaction,
    *,
    key: str = "",
    witnesses: Sequence[Checkpoint] = (),
    thorough: bool = False,
    stages: Stages = untold,
) -> Verdict:
    """Recompute the whole chain. key: a public key that must have sealed it, or be one of those
    that did, where keys were changed.

    The signature of the last entry binds all before it, since each holds the hash of the one
    before; thorough: check every signature all the same.
    """
    wanted = {point.seq for point in witnesses}
    stage = stages("verifying", lambda: changelog.head(tx)[0])
    with stage as told, changelog.rows(tx) as rows:
        verdict, seen, bound = _walk(counted(rows, told), thorough=thorough, wanted=wanted)
    if verdict.broken is not None and verdict.why.endswith(_UNSIGNED) and not thorough:
        # The hashes were made to fit again by somebody without the key: find where that began.
        return verify(tx, key=key, witnesses=witnesses, thorough=True, stages=stages)
    if verdict.broken is None and key and key not in verdict.keys and verdict.entries:
        why = f"sealed by the key {verdict.key[:16]}…, and not by {key[:16]}…"
        return replace(verdict, broken=verdict.entries, why=why)
    return _with_outputs(tx, _compared(tx, verdict, seen, witnesses), bound, stages)


def verify_alone(database: Database) -> Verdict:
    """Recompute the whole chain for whoever asks through a door: for one at a time.

    In a log of years it takes minutes, and a thread that others need. Raises AtItAlready.
    """
    if not _AT_IT.acquire(blocking=False):
        raise AtItAlready(
            "the log is being verified already: do it again when that is done, in some minutes"
        )
    try:
        with database.reading() as tx:
            return verify(tx)
    finally:
        _AT_IT.release()


def verify_tail(tx: Transaction, *, most: int, witnesses: Sequence[Checkpoint] = ()) -> Verdict:
    """Recompute the newest entries, and the signature of the last, which binds all before it.

    What a witness kept of older entries is only held against how long the log is.
    """
    entries = changelog.newest(tx, most=most)[::-1]
    if not entries:
        return _compared(tx, Verdict(0, GENESIS), {}, witnesses)
    seq, prev = entries[0].seq - 1, entries[0].prev
    for entry in entries:
        if why := _fault(list(vars(entry).values()), seq + 1, prev):
            return Verdict(seq, prev, broken=seq + 1, why=why)
        seq, prev = entry.seq, entry.hash
    named = changelog.last_of_kind(tx, KEY)
    key = _public(named) if named else ""
    found = Verdict(seq, prev, key, keys=(key,))
    if not _signed([key], entries[-1]):
        return replace(found, broken=seq, why=f"entry {seq} {_UNSIGNED}")
    seen = {entry.seq: entry.hash for entry in entries}
    near = [point for point in witnesses if point.seq >= entries[0].seq]
    return _compared(tx, found, seen, near)


def _with_outputs(tx: Transaction, verdict: Verdict, bound: int, stages: Stages) -> Verdict:
    """Hold what is kept apart from the chain against the hashes in it."""
    if verdict.broken is not None:
        return verdict
    with stages("verifying outputs", lambda: bound) as told:
        fault = next(output.faults(tx, bound, told), None)
    return verdict if fault is None else replace(verdict, broken=fault[0], why=fault[1])


def _walk(
    rows: Iterable[tuple[Any, ...]], *, thorough: bool, wanted: set[int]
) -> tuple[Verdict, dict[int, str], int]:
    """Return the verdict, the hashes of the wanted entries, and how many entries bind output."""
    seq, prev, bound = 0, GENESIS, 0
    row: tuple[Any, ...] | None = None
    keys: list[str] = []
    seen: dict[int, str] = {}
    for row in rows:
        why = _fault(row, seq + 1, prev)
        if not why and row[_KIND] == KEY:
            entry = Entry(*row)
            why = _fault_of_key(entry, keys)
            keys.append(_public(entry))
        elif not why and (thorough or not keys) and not _signed(keys, Entry(*row)):
            why = f"entry {seq + 1} {_UNSIGNED}"
        if why:
            return Verdict(seq, prev, broken=seq + 1, why=why), seen, bound
        seq, prev = seq + 1, row[_HASH]
        bound += output.BINDS in row[_BODY]
        if seq in wanted:
            seen[seq] = prev
    found = Verdict(seq, prev, keys[-1] if keys else "", keys=tuple(keys))
    if row is not None and row[_KIND] != KEY and not _signed(keys, Entry(*row)):
        return replace(found, broken=seq, why=f"entry {seq} {_UNSIGNED}"), seen, bound
    return found, seen, bound


def _fault_of_key(entry: Entry, keys: Sequence[str]) -> str:
    """Say what is wrong with an entry that names a key; the first one names its own."""
    if not _signed(keys or [_public(entry)] * (entry.seq == 1), entry):
        return f"entry {entry.seq} {_UNSIGNED}"
    if keys and not seal.fits(_public(entry), entry.prev, str(entry.facts.get("proof"))):
        return f"entry {entry.seq} names a key whose owner did not sign"
    return ""


def _public(entry: Entry) -> str:
    return str(entry.facts.get("public", ""))


def _compared(
    tx: Transaction, verdict: Verdict, seen: dict[int, str], witnesses: Sequence[Checkpoint]
) -> Verdict:
    """Hold the log against what witnesses kept: it may have been cut, restored or forked."""
    if verdict.broken is not None or not witnesses:
        return verdict
    losses = [(entry.seq, entry.at) for entry in changelog.since(tx, RESTORED, 0)]
    lost = 0
    for point in sorted(witnesses, key=lambda point: point.seq):
        if not seal.fits(point.key, point.hash, point.signature):
            why = f"the witness's checkpoint of entry {point.seq} is not signed by its key"
        elif any(seq <= point.seq and point.at <= at for seq, at in losses):
            lost += 1
            continue
        elif point.seq > verdict.entries:
            why = (
                f"cut off: a witness saw entry {point.seq}, and the log ends at {verdict.entries} "
                "(was a backup restored?)"
            )
        elif seen.get(point.seq) != point.hash:
            why = f"another history: a witness saw another entry {point.seq}"
        else:
            continue
        broken = min(point.seq, verdict.entries + 1)
        return replace(verdict, broken=broken, why=why)
    return replace(verdict, lost=lost)


def _signed(keys: Sequence[str], entry: Entry) -> bool:
    return bool(keys) and seal.fits(keys[-1], entry.hash, entry.signature)


def _fault(row: Sequence[Any], seq: int, prev: str) -> str:
    """Say what is wrong with an entry. row: its members, in their order."""
    number, at, _, run, _, _, _, before, _, signature = row
    if number != seq:
        return f"entry {seq} is missing"
    if before != prev:
        return f"entry {seq} does not follow the one before it"
    # SQLite keeps a text in a column of numbers, and the other way round.
    typed = type(number) is type(at) is int and type(run) in _NUMBER_OR_NONE
    if typed and type(signature) is str and changelog.has_its_hash(row):
        return ""
    return f"entry {seq} was altered: its content does not have its hash"
