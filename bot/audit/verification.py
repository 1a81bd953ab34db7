"""Verification of the change log: every hash, every link, the seal, and what witnesses saw."""

import os
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from bot.audit import change_log, output, signing
from bot.audit.change_log import GENESIS, Entry, succession
from bot.audit.checkpoints import Checkpoint
from bot.audit.signing import SigningKey
from bot.db.database import Database, Transaction
from bot.model.progress import Stages, count_progress, report_nothing

KEY = change_log.KEY
# A backup was put back: what came after it is lost, and witnesses may have seen it.
RESTORED = "restored"
# A person knows of entries that were lost.
ACKNOWLEDGED = "loss acknowledged"
# The members of a row that each one is looked at for, by their place, which is quickest; and of
# which types all of them are: those of Entry.
_KIND, _BODY, _HASH, _SIGNATURE = 2, 6, 8, 9
_NUMBER_OR_NONE = (int, type(None))
# Signatures are checked by several threads, so many at once; so many batches wait at the most.
_BATCH, _BATCHES, _MOST_THREADS = 500, 32, 8
# The first entry that a new key signs.
_KEY_IN_USE = "key in use"
_UNSIGNED = "is not signed by the key of the log"
_AT_IT = Lock()


class AlreadyVerifying(Exception):
    """Somebody is having the whole log verified just now."""


@dataclass(frozen=True)
class Verification:
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
    check_signing_key(tx, tx.seal)
    # Of several that begin at once, one names the key.
    change_log.lock_log(tx)
    if not check_signing_key(tx, tx.seal):
        change_log.append_entry(tx, KEY, public=tx.seal.public)


def check_signing_key(tx: Transaction, ours: SigningKey) -> bool:
    """Say whether the log has a key. Raises BadKey if that is not ours."""
    last = change_log.get_last_entry_of_kind(tx, KEY)
    if last is not None and _public(last) != ours.public:
        raise signing.KeyFileError(
            f"the change log is sealed by the key {_public(last)[:16]}…, and ours is "
            f"{ours.public[:16]}…: put the right changelog.key back, from the backup of its day"
        )
    return last is not None


def append_key_change(
    tx: Transaction,
    new: SigningKey,
    *,
    witnesses: Sequence[Checkpoint] = (),
    stages: Stages = report_nothing,
) -> None:
    """Name the key that signs the log from the next entry on, and prove that we have it.

    The new key vouches for every entry before it, so the whole log is verified first, each
    signature by the key of its time. Raises BadKey if anything does not fit.
    """
    change_log.lock_log(tx)
    verdict = verify_log(tx, witnesses=witnesses, stages=stages)
    if verdict.broken is not None or verdict.key != tx.seal.public:
        raise signing.KeyFileError(
            f"the change log is broken ({verdict.why or 'another key seals it'}): no other key "
            "vouches for it. Run `keyturn changelog verify`"
        )
    seq, head = change_log.get_head(tx)
    proof = new.sign(succession(seq + 1, head, tx.seal.public))
    change_log.append_entry(tx, KEY, public=new.public, proof=proof)
    # The newest entry is always signed by the key in use: who appends checks that.
    tx.seal_by(new)
    change_log.append_entry(tx, _KEY_IN_USE, public=new.public)


def make_checkpoint(tx: Transaction) -> Checkpoint:
    """Return how far the log is, in a transaction that writes. Raises LogAltered.

    It has the signature of the entry itself: a hash that stands in the database is not signed
    again, since an attacker may have put it there.
    """
    newest = change_log.locked_head(tx)
    if newest is None:
        return Checkpoint(0, GENESIS, tx.now, tx.seal.public, tx.seal.sign(GENESIS))
    return Checkpoint(newest.seq, newest.hash, tx.now, tx.seal.public, newest.signature)


def make_checkpoint_at(tx: Transaction, entry: Entry) -> Checkpoint:
    """Return how far the log is with an entry that this transaction has appended."""
    return Checkpoint(entry.seq, entry.hash, entry.at, tx.seal.public, entry.signature)


def verify_log(
    tx: Transaction,
    *,
    key: str = "",
    witnesses: Sequence[Checkpoint] = (),
    quick: bool = False,
    stages: Stages = report_nothing,
) -> Verification:
    """Recompute the whole chain and check every signature.

    Args:
        key: A public key that must have sealed it, or be one of those that did, where keys were
            changed.
        witnesses: What witnesses saw.
        quick: Check only the signatures of the last entry and of those that name keys. Each entry
            was checked by whoever added the next one; what was altered since breaks the chain.
    """
    wanted = {point.seq for point in witnesses}
    stage = stages("verifying", lambda: change_log.get_head(tx)[0])
    with stage as told, change_log.read_rows(tx) as rows:
        verdict, seen, bound = _walk(count_progress(rows, told), quick=quick, wanted=wanted)
    if verdict.broken is not None and verdict.why.endswith(_UNSIGNED) and quick:
        # The hashes were made to fit again by somebody without the key: find where that began.
        return verify_log(tx, key=key, witnesses=witnesses, stages=stages)
    found = _with_outputs(tx, _compared(tx, verdict, seen, witnesses), bound, stages)
    # Last: who names a key never learns less than who names none.
    if found.broken is None and key and key not in found.keys:
        by = f"sealed by the key {found.key[:16]}…" if found.key else "empty"
        why = f"{by}, and not sealed by {key[:16]}…"
        return replace(found, broken=max(found.entries, 1), why=why)
    return found


def verify_log_once(database: Database) -> Verification:
    """Recompute the whole chain for whoever asks through a door: for one at a time.

    In a log of years it takes minutes, and a thread that others need. Raises AtItAlready.
    """
    if not _AT_IT.acquire(blocking=False):
        raise AlreadyVerifying(
            "the log is being verified already: do it again when that is done, in some minutes"
        )
    try:
        with database.reading() as tx:
            return verify_log(tx)
    finally:
        _AT_IT.release()


def verify_newest_entries(
    tx: Transaction, *, most: int, witnesses: Sequence[Checkpoint] = ()
) -> Verification:
    """Recompute the newest entries, and check each of their signatures.

    What a witness kept of older entries is only held against how long the log is.
    """
    entries = change_log.list_newest_entries(tx, most=most)[::-1]
    if not entries:
        return _compared(tx, Verification(0, GENESIS), {}, witnesses)
    seq, prev = entries[0].seq - 1, entries[0].prev
    keys = change_log.keys_named(tx)
    for entry in entries:
        if why := _fault(list(vars(entry).values()), seq + 1, prev):
            return Verification(seq, prev, broken=seq + 1, why=why)
        if not change_log.is_signed(entry, keys):
            why = f"entry {entry.seq} {_UNSIGNED}"
            return Verification(seq, prev, broken=entry.seq, why=why)
        seq, prev = entry.seq, entry.hash
    key = change_log.key_of(keys, seq + 1)
    found = Verification(seq, prev, key, keys=(key,))
    seen = {entry.seq: entry.hash for entry in entries}
    near = [point for point in witnesses if point.seq >= entries[0].seq]
    return _compared(tx, found, seen, near)


def _with_outputs(
    tx: Transaction, verdict: Verification, bound: int, stages: Stages
) -> Verification:
    """Hold what is kept apart from the chain against the hashes in it."""
    if verdict.broken is not None:
        return verdict
    with stages("verifying outputs", lambda: bound) as told:
        fault = next(output.find_output_faults(tx, bound, told), None)
    return verdict if fault is None else replace(verdict, broken=fault[0], why=fault[1])


class _Signatures:
    """Checks signatures on all cores: libsodium lets other threads go on meanwhile.

    Each is a key, the number, the hash and the signature of an entry, in the order of the log.
    """

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._batch: list[tuple[str, int, str, str]] = []
        self._checked: deque[Future[int]] = deque()

    def add(self, key: str, row: Sequence[Any]) -> int:
        """Return the first entry known by now not to be signed; 0 if none is known."""
        self._batch.append((key, row[0], row[_HASH], row[_SIGNATURE]))
        if len(self._batch) < _BATCH:
            return 0
        self._submit()
        return self._checked.popleft().result() if len(self._checked) > _BATCHES else 0

    def first_bad(self) -> int:
        """Wait for all of them. Return the first entry that is not signed; 0 if all are."""
        self._submit()
        return next(filter(None, (one.result() for one in self._checked)), 0)

    def _submit(self) -> None:
        self._checked.append(self._pool.submit(_first_unsigned, self._batch))
        self._batch = []


def _first_unsigned(batch: Sequence[tuple[str, int, str, str]]) -> int:
    unsigned = (
        seq
        for key, seq, digest, made in batch
        if not signing.is_signature_valid(key, digest, made)
    )
    return next(unsigned, 0)


def _walk(
    rows: Iterable[Sequence[Any]], *, quick: bool, wanted: set[int]
) -> tuple[Verification, dict[int, str], int]:
    """Return the verdict, the hashes of the wanted entries, and how many entries bind output."""
    seq, prev, bound, bad = 0, GENESIS, 0, 0
    row: Sequence[Any] | None = None
    keys: list[str] = []
    seen: dict[int, str] = {}
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        signatures = _Signatures(pool)
        why = ""
        for row in rows:
            why = _fault(row, seq + 1, prev) or _fault_of_key(row, keys)
            if not (why or quick or row[_KIND] == KEY):
                bad = signatures.add(keys[-1], row)
            if why or bad:
                break
            seq, prev = seq + 1, row[_HASH]
            bound += output.BINDS in row[_BODY]
            if seq in wanted:
                seen[seq] = prev
        bad = bad or signatures.first_bad()
    if not (bad or why) and quick and row is not None and row[_KIND] != KEY:
        bad = 0 if signing.is_signature_valid(keys[-1], prev, row[_SIGNATURE]) else seq
    found = Verification(seq, prev, keys[-1] if keys else "", keys=tuple(keys))
    if bad:
        return replace(found, broken=bad, why=f"entry {bad} {_UNSIGNED}"), seen, bound
    return (replace(found, broken=seq + 1, why=why) if why else found), seen, bound


def _fault_of_key(row: Sequence[Any], keys: list[str]) -> str:
    """Note the key that an entry names, if it does; the first one names its own. Say what is wrong
    with it, or that there is no key yet."""
    if row[_KIND] != KEY:
        return "" if keys else f"entry {row[0]} {_UNSIGNED}"
    entry = Entry(*row)
    by = keys[-1] if keys else _public(entry) if entry.seq == 1 else ""
    if not signing.is_signature_valid(by, entry.hash, entry.signature):
        return f"entry {entry.seq} {_UNSIGNED}"
    if keys and not change_log.is_succession(entry, keys[-1]):
        return f"entry {entry.seq} names a key whose owner did not sign"
    keys.append(_public(entry))
    return ""


def _public(entry: Entry) -> str:
    return str(entry.facts.get("public", ""))


def _compared(
    tx: Transaction, verdict: Verification, seen: dict[int, str], witnesses: Sequence[Checkpoint]
) -> Verification:
    """Hold the log against what witnesses kept: it may have been cut, restored or forked."""
    if verdict.broken is not None or not witnesses:
        return verdict
    losses, lost, unacknowledged = losses_in(tx), 0, list[tuple[Loss, int]]()
    for point in sorted(witnesses, key=lambda point: point.seq):
        why, loss = _missed(verdict, seen, losses, point)
        if why:
            return replace(verdict, broken=min(point.seq, verdict.entries + 1), why=why)
        lost += loss is not None
        if loss is not None and not loss.acknowledged:
            unacknowledged.append((loss, point.seq))
    if not unacknowledged:
        return replace(verdict, lost=lost)
    first, last = unacknowledged[0][0].first, unacknowledged[-1][1]
    why = (
        f"entries {first} to {last}, which witnesses saw, were lost when a backup was put back, "
        "and nobody has acknowledged that. Find out what they were, then run `keyturn changelog "
        f"acknowledge {first} --lost {last - first + 1}`"
    )
    return replace(verdict, broken=first, why=why, lost=lost)


def _missed(
    verdict: Verification, seen: dict[int, str], losses: "Sequence[Loss]", point: Checkpoint
) -> "tuple[str, Loss | None]":
    """Say what is wrong with the log by a checkpoint, or by which loss it is excused."""
    if not signing.is_signature_valid(point.key, point.hash, point.signature):
        return f"the witness's checkpoint of entry {point.seq} is not signed by its key", None
    if not point.seq or seen.get(point.seq) == point.hash:
        return "", None
    if loss := loss_of(losses, point):
        return "", loss
    if point.seq <= verdict.entries:
        return f"another history: a witness saw another entry {point.seq}", None
    why = (
        f"cut off: a witness saw entry {point.seq}, and the log ends at {verdict.entries} (was a "
        "backup restored?)"
    )
    return why, None


@dataclass(frozen=True)
class Loss:
    """Entries of an earlier history that are not in the log any more, as the log itself says.

    first, last: their numbers; last is None where a backup was put back: nobody knows. until: what
    witnesses saw later was not lost then; microseconds.
    """

    first: int
    last: int | None
    until: int

    @property
    def acknowledged(self) -> bool:
        """Whether a person knows of it."""
        return self.last is not None


def losses_in(tx: Transaction) -> list[Loss]:
    """Return what the log says of its losses, those first that a person has acknowledged."""
    keys = change_log.keys_named(tx)
    found = [Loss(one.seq, None, one.at) for one in _signed(tx, RESTORED, keys)]
    for one in _signed(tx, ACKNOWLEDGED, keys):
        first, lost = int(one.facts["first"]), int(one.facts["lost"])
        found.insert(0, Loss(first, first + lost - 1, one.at))
    return found


def loss_of(losses: Sequence[Loss], point: Checkpoint) -> Loss | None:
    """Return the loss by which what a witness saw is gone; None if by none."""
    for loss in losses:
        last = point.seq if loss.last is None else loss.last
        if loss.first <= point.seq <= last and point.at <= loss.until:
            return loss
    return None


def acknowledge(
    tx: Transaction,
    witnesses: Sequence[Checkpoint],
    *,
    first: int,
    lost: int,
    person: str,
    reason: str = "",
    login: str = "",
) -> None:
    """Record that a person knows of entries that were lost. The log has to be whole otherwise.

    Raises ValueError unless just these are what witnesses saw and the log lacks.
    """
    change_log.lock_log(tx)
    verdict = verify_log(tx)
    if verdict.broken is not None:
        raise ValueError(f"the log is broken at entry {verdict.broken}: {verdict.why}")
    missing = [point for point in witnesses if _is_missing(tx, point)]
    if not missing:
        raise ValueError("the log holds all that the witnesses saw: nothing was lost")
    missing.sort(key=lambda point: point.seq)
    loss = loss_of(losses_in(tx), missing[0])
    begin = loss.first if loss else min(missing[0].seq, verdict.entries + 1)
    count = missing[-1].seq - begin + 1
    if (first, lost) != (begin, count):
        raise ValueError(
            f"the log lacks {count} entries from {begin} on that witnesses saw. Find out what "
            f"they were, then run `keyturn changelog acknowledge {begin} --lost {count}`"
        )
    change_log.append_entry(
        tx,
        ACKNOWLEDGED,
        person=person,
        first=first,
        lost=lost,
        reason=reason,
        login=login,
    )


def check_witness(tx: Transaction, point: Checkpoint) -> None:
    """Raise LogAltered if the log lacks what a witness saw, and does not say that it was lost."""
    if _is_missing(tx, point) and loss_of(losses_in(tx), point) is None:
        raise change_log.LogAltered(f"a witness saw another entry {point.seq}, or it is missing")


def _is_missing(tx: Transaction, point: Checkpoint) -> bool:
    """Say whether a witness saw an entry that is neither here nor acknowledged to be lost."""
    if not point.seq or not signing.is_signature_valid(point.key, point.hash, point.signature):
        return False
    rows = change_log.rows_from(tx, point.seq, most=1)
    if rows and (rows[0][0], rows[0][_HASH]) == (point.seq, point.hash):
        return False
    loss = loss_of(losses_in(tx), point)
    return loss is None or not loss.acknowledged


def _signed(tx: Transaction, kind: str, keys: Sequence[tuple[int, str]]) -> list[Entry]:
    found = list(change_log.list_entries_since(tx, kind, 0))[::-1]
    return [
        one
        for one in found
        if change_log.is_hash_valid([*vars(one).values()]) and change_log.is_signed(one, keys)
    ]


def _fault(row: Sequence[Any], seq: int, prev: str) -> str:
    """Say what is wrong with an entry. row: its members, in their order."""
    number, at, _, run, _, _, _, before, _, signature = row
    if number != seq:
        return f"entry {seq} is missing"
    if before != prev:
        return f"entry {seq} does not follow the one before it"
    # SQLite keeps a text in a column of numbers, and the other way round.
    typed = type(number) is type(at) is int and type(run) in _NUMBER_OR_NONE
    if typed and type(signature) is str and change_log.is_hash_valid(row):
        return ""
    return f"entry {seq} was altered: its content does not have its hash"
