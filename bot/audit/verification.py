"""Verification of the change log: every hash, link and signature, and the witnesses."""

import os
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from bot.audit import change_log, events, output
from bot.audit.change_log import GENESIS, Entry, hash_succession
from bot.audit.checkpoints import Checkpoint
from bot.db.database import Database, Transaction
from bot.model import signing
from bot.model.progress import BeginStage, begin_silent_stage, iterate_with_progress
from bot.model.signing import SigningKey
from connectors.errors import DomainError

# The indexes of the members of a row that verification reads; an index is faster than a name.
_KIND, _BODY, _HASH, _SIGNATURE = 2, 6, 8, 9
_NUMBER_OR_NONE = (int, type(None))
# The size of a batch of signatures, how many batches may wait, and how many threads check them.
_BATCH, _BATCHES, _MOST_THREADS = 500, 32, 8
_UNSIGNED_MESSAGE = "is not signed by the key of the log"
_VERIFICATION_LOCK = Lock()


class VerificationInProgress(DomainError):
    """The whole log is being verified already."""

    code, status = "verification-in-progress", 409


@dataclass(frozen=True)
class Verification:
    """The result of a verification."""

    entries: int
    """How many entries from the beginning are intact."""
    head: str
    """The hash of the last of these."""
    key: str = ""
    """The public key in use at the end."""
    broken: int | None = None
    """The number of the first entry that is wrong; None if the log is intact."""
    why: str = ""
    """What is wrong with it."""
    keys: tuple[str, ...] = ()
    """All public keys of the log in their order, each introduced by the one before."""
    lost: int = 0
    """How many checkpoints of witnesses are of entries that a restore lost, as the log records."""


def open_log(tx: Transaction) -> None:
    """Start a new log with its key, or check that an existing one was signed by our key.

    Raises KeyFileError if another key signed it: new entries could not be verified.
    """
    check_signing_key(tx, tx.signing_key)
    # Of several processes that start at the same time, one adds the key.
    change_log.lock_log(tx)
    if not check_signing_key(tx, tx.signing_key):
        change_log.append_entry(tx, events.KeyAdded(public=tx.signing_key.public_key))


def check_signing_key(tx: Transaction, signing_key: SigningKey) -> bool:
    """Return whether the log has a key. Raises KeyFileError if it is not ours."""
    last = change_log.get_last_entry_of_kind(tx, events.KeyAdded.kind)
    logged_key = change_log.get_added_key(last) if last else ""
    if last is not None and logged_key != signing_key.public_key:
        raise signing.KeyFileError(
            f"the change log is signed by the key {logged_key[:16]}…, but ours is "
            f"{signing_key.public_key[:16]}…: restore the right changelog.key from the backup of "
            "that time"
        )
    return last is not None


def append_key_change(
    tx: Transaction,
    new_key: SigningKey,
    *,
    witnesses: Sequence[Checkpoint] = (),
    stages: BeginStage = begin_silent_stage,
) -> None:
    """Add the key that signs the log from the next entry on, with proof that we have it.

    The new key vouches for every entry before it, so the whole log is verified first, each
    signature with the key that was in use then. Raises KeyFileError if anything is wrong.
    """
    change_log.lock_log(tx)
    verdict = verify_log(tx, witnesses=witnesses, stages=stages)
    if verdict.broken is not None or verdict.key != tx.signing_key.public_key:
        raise signing.KeyFileError(
            f"the change log is broken ({verdict.why or 'another key signs it'}), so its key "
            "cannot be changed. Run `keyturn changelog verify`"
        )
    seq, head = change_log.get_head(tx)
    proof = new_key.sign_hash(hash_succession(seq + 1, head, tx.signing_key.public_key))
    change_log.append_entry(tx, events.KeyAdded(public=new_key.public_key, proof=proof))
    # The newest entry is always signed by the key in use: every append checks that.
    tx.set_signing_key(new_key)
    change_log.append_entry(tx, events.KeyInUse(public=new_key.public_key))


def create_checkpoint(tx: Transaction) -> Checkpoint:
    """Return a checkpoint of the newest entry, in a transaction that writes.

    It has the signature of the entry itself. A hash from the database is never signed again,
    because an attacker may have put it there. Raises LogAlteredError.
    """
    newest = change_log.lock_and_get_head(tx)
    if newest is None:
        return Checkpoint(
            0, GENESIS, tx.now, tx.signing_key.public_key, tx.signing_key.sign_hash(GENESIS)
        )
    return Checkpoint(newest.seq, newest.hash, tx.now, tx.signing_key.public_key, newest.signature)


def create_checkpoint_at(tx: Transaction, entry: Entry) -> Checkpoint:
    """Return a checkpoint of an entry that this transaction appended."""
    return Checkpoint(entry.seq, entry.hash, entry.at, tx.signing_key.public_key, entry.signature)


def verify_log(
    tx: Transaction,
    *,
    required_key: str = "",
    witnesses: Sequence[Checkpoint] = (),
    quick: bool = False,
    stages: BeginStage = begin_silent_stage,
) -> Verification:
    """Recompute the whole chain and check every signature.

    Args:
        required_key: A public key that has to be one of the keys of the log.
        witnesses: The checkpoints that witnesses hold.
        quick: Check only the signatures of the last entry and of those that add keys. Each entry
            was checked before the next one was added; a later change breaks the chain.
    """
    wanted = {point.seq for point in witnesses}
    stage = stages("verifying", lambda: change_log.get_head(tx)[0])
    with stage as report_progress, change_log.read_rows(tx) as rows:
        verdict, seen, bound = _verify_rows(
            iterate_with_progress(rows, report_progress), quick=quick, checkpoint_numbers=wanted
        )
    if verdict.broken is not None and quick:
        # An attacker without the key may have recomputed the hashes: find the first such entry.
        return verify_log(tx, required_key=required_key, witnesses=witnesses, stages=stages)
    found = _verify_outputs(
        tx, _compare_with_witnesses(tx, verdict, seen, witnesses), bound, stages
    )
    # Checked last, so that a required key never hides another problem.
    if found.broken is None and required_key and required_key not in found.keys:
        signed_by = f"signed by the key {found.key[:16]}…" if found.key else "empty"
        why = f"{signed_by}, and not signed by {required_key[:16]}…"
        return replace(found, broken=max(found.entries, 1), why=why)
    return found


def verify_log_once(database: Database) -> Verification:
    """Verify the whole log for a request of the API or the web, one at a time.

    For a log of years this takes minutes, and a thread that other requests need. Raises
    VerificationInProgress.
    """
    if not _VERIFICATION_LOCK.acquire(blocking=False):
        raise VerificationInProgress(
            "the log is being verified already: try again in some minutes, when that is done"
        )
    try:
        with database.reading() as tx:
            return verify_log(tx)
    finally:
        _VERIFICATION_LOCK.release()


def verify_newest_entries(
    tx: Transaction, *, limit: int, witnesses: Sequence[Checkpoint] = ()
) -> Verification:
    """Verify the newest entries with their signatures.

    Checkpoints of older entries are only compared with the length of the log.
    """
    entries = change_log.list_newest_entries(tx, limit=limit)[::-1]
    if not entries:
        return _compare_with_witnesses(tx, Verification(0, GENESIS), {}, witnesses)
    seq, prev = entries[0].seq - 1, entries[0].prev
    keys = change_log.list_keys(tx)
    for entry in entries:
        if why := _find_row_fault(list(vars(entry).values()), seq + 1, prev):
            return Verification(seq, prev, broken=seq + 1, why=why)
        if not change_log.is_entry_signed(entry, keys):
            why = f"entry {entry.seq} {_UNSIGNED_MESSAGE}"
            return Verification(seq, prev, broken=entry.seq, why=why)
        seq, prev = entry.seq, entry.hash
    key = change_log.find_key_of_entry(keys, seq + 1)
    found = Verification(seq, prev, key, keys=(key,))
    seen = {entry.seq: entry.hash for entry in entries}
    near = [point for point in witnesses if point.seq >= entries[0].seq]
    return _compare_with_witnesses(tx, found, seen, near)


def _verify_outputs(
    tx: Transaction, verification: Verification, bound_count: int, stages: BeginStage
) -> Verification:
    """Compare the stored output with the hashes in the log."""
    if verification.broken is not None:
        return verification
    with stages("verifying outputs", lambda: bound_count) as report_progress:
        fault = next(output.iterate_output_faults(tx, bound_count, report_progress), None)
    return verification if fault is None else replace(verification, broken=fault[0], why=fault[1])


class _SignatureChecker:
    """Checks signatures in the order of the log, on all cores: libsodium releases the GIL."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._batch: list[tuple[str, int, str, str]] = []
        self._results: deque[Future[int]] = deque()

    def add_row(self, key: str, row: Sequence[Any]) -> int:
        """Add an entry to check. Return the first one found unsigned so far; 0 if none."""
        self._batch.append((key, row[0], row[_HASH], row[_SIGNATURE]))
        if len(self._batch) < _BATCH:
            return 0
        self._submit_batch()
        return self._results.popleft().result() if len(self._results) > _BATCHES else 0

    def find_first_unsigned(self) -> int:
        """Wait for all checks. Return the first entry that is not signed; 0 if all are."""
        self._submit_batch()
        return next(filter(None, (one.result() for one in self._results)), 0)

    def _submit_batch(self) -> None:
        self._results.append(self._pool.submit(_find_first_unsigned, self._batch))
        self._batch = []


def _find_first_unsigned(batch: Sequence[tuple[str, int, str, str]]) -> int:
    unsigned = (
        seq
        for key, seq, digest, signature in batch
        if not signing.is_signature_valid(key, digest, signature)
    )
    return next(unsigned, 0)


def _verify_rows(
    rows: Iterable[Sequence[Any]], *, quick: bool, checkpoint_numbers: set[int]
) -> tuple[Verification, dict[int, str], int]:
    """Return the result, the hashes of the entries with checkpoints, and how many bind output."""
    seq, prev, bound, bad = 0, GENESIS, 0, 0
    row: Sequence[Any] | None = None
    keys: list[str] = []
    seen: dict[int, str] = {}
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        signatures = _SignatureChecker(pool)
        why = ""
        for row in rows:
            why = _find_row_fault(row, seq + 1, prev) or _find_key_fault(row, keys)
            if not (why or quick or row[_KIND] == events.KeyAdded.kind):
                bad = signatures.add_row(keys[-1], row)
            if why or bad:
                break
            seq, prev = seq + 1, row[_HASH]
            bound += output.BINDING_MARK in row[_BODY]
            if seq in checkpoint_numbers:
                seen[seq] = prev
        bad = bad or signatures.find_first_unsigned()
    if not (bad or why) and quick and row is not None and row[_KIND] != events.KeyAdded.kind:
        bad = 0 if signing.is_signature_valid(keys[-1], prev, row[_SIGNATURE]) else seq
    found = Verification(seq, prev, keys[-1] if keys else "", keys=tuple(keys))
    if bad:
        return replace(found, broken=bad, why=f"entry {bad} {_UNSIGNED_MESSAGE}"), seen, bound
    return (replace(found, broken=seq + 1, why=why) if why else found), seen, bound


def _find_key_fault(row: Sequence[Any], keys: list[str]) -> str:
    """Return what is wrong with an entry that adds a key, or that no key is known yet.

    A valid key is appended to *keys*. The first entry of the log adds its own key.
    """
    if row[_KIND] != events.KeyAdded.kind:
        return "" if keys else f"entry {row[0]} {_UNSIGNED_MESSAGE}"
    entry = Entry(*row)
    by = keys[-1] if keys else change_log.get_added_key(entry) if entry.seq == 1 else ""
    if not signing.is_signature_valid(by, entry.hash, entry.signature):
        return f"entry {entry.seq} {_UNSIGNED_MESSAGE}"
    if keys and not change_log.is_succession_signed(entry, keys[-1]):
        return f"entry {entry.seq} names a key whose owner did not sign"
    keys.append(change_log.get_added_key(entry))
    return ""


def _compare_with_witnesses(
    tx: Transaction,
    verification: Verification,
    hashes: dict[int, str],
    witnesses: Sequence[Checkpoint],
) -> Verification:
    """Compare the log with the checkpoints of witnesses: it may be cut off, restored or forked."""
    if verification.broken is not None or not witnesses:
        return verification
    losses, lost, unacknowledged = list_losses(tx), 0, list[tuple[LogLoss, int]]()
    for point in sorted(witnesses, key=lambda point: point.seq):
        why, loss = _compare_with_checkpoint(verification, hashes, losses, point)
        if why:
            return replace(verification, broken=min(point.seq, verification.entries + 1), why=why)
        lost += loss is not None
        if loss is not None and not loss.is_acknowledged:
            unacknowledged.append((loss, point.seq))
    if not unacknowledged:
        return replace(verification, lost=lost)
    first, last = unacknowledged[0][0].first, unacknowledged[-1][1]
    why = (
        f"entries {first} to {last}, which witnesses saw, were lost when a backup was restored, "
        "and no one has acknowledged that. Find out what they were, then run `keyturn changelog "
        f"acknowledge {first} --lost {last - first + 1}`"
    )
    return replace(verification, broken=first, why=why, lost=lost)


def _compare_with_checkpoint(
    verification: Verification,
    hashes: dict[int, str],
    losses: "Sequence[LogLoss]",
    checkpoint: Checkpoint,
) -> "tuple[str, LogLoss | None]":
    """Return what is wrong with the log by a checkpoint, or the recorded loss that explains it."""
    if not signing.is_signature_valid(checkpoint.key, checkpoint.hash, checkpoint.signature):
        return f"the witness's checkpoint of entry {checkpoint.seq} is not signed by its key", None
    if not checkpoint.seq or hashes.get(checkpoint.seq) == checkpoint.hash:
        return "", None
    if loss := find_loss_of_checkpoint(losses, checkpoint):
        return "", loss
    if checkpoint.seq <= verification.entries:
        return f"another history: a witness saw another entry {checkpoint.seq}", None
    why = (
        f"cut off: a witness saw entry {checkpoint.seq}, and the log ends at "
        f"{verification.entries} (was a "
        "backup restored?)"
    )
    return why, None


@dataclass(frozen=True)
class LogLoss:
    """Entries of an earlier history that are no longer in the log, as the log itself records."""

    first: int
    """The number of the first of them."""
    last: int | None
    """The number of the last; None after a restore, which does not know it."""
    until: int
    """When the loss was recorded, in microseconds: entries that witnesses saw later are not part
    of it."""

    @property
    def is_acknowledged(self) -> bool:
        """Whether a person acknowledged it."""
        return self.last is not None


def list_losses(tx: Transaction) -> list[LogLoss]:
    """Return the losses that the log records, the acknowledged ones first."""
    keys = change_log.list_keys(tx)
    found = [
        LogLoss(one.seq, None, one.at)
        for one in _list_signed_entries(tx, events.Restored.kind, keys)
    ]
    for one in _list_signed_entries(tx, events.LossAcknowledged.kind, keys):
        loss = one.event
        if isinstance(loss, events.LossAcknowledged):
            found.insert(0, LogLoss(loss.first, loss.first + loss.lost - 1, one.at))
    return found


def find_loss_of_checkpoint(losses: Sequence[LogLoss], checkpoint: Checkpoint) -> LogLoss | None:
    """Return the loss that a checkpoint belongs to; None if it belongs to none."""
    for loss in losses:
        last = checkpoint.seq if loss.last is None else loss.last
        if loss.first <= checkpoint.seq <= last and checkpoint.at <= loss.until:
            return loss
    return None


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
    missing = [point for point in witnesses if _is_missing(tx, point)]
    if not missing:
        raise ValueError("the log holds everything that the witnesses saw: nothing was lost")
    missing.sort(key=lambda point: point.seq)
    loss = find_loss_of_checkpoint(list_losses(tx), missing[0])
    begin = loss.first if loss else min(missing[0].seq, verdict.entries + 1)
    count = missing[-1].seq - begin + 1
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


def check_witness(tx: Transaction, checkpoint: Checkpoint) -> None:
    """Raise LogAlteredError if the log lacks what a witness saw without a record of the loss."""
    if (
        _is_missing(tx, checkpoint)
        and find_loss_of_checkpoint(list_losses(tx), checkpoint) is None
    ):
        raise change_log.LogAlteredError(
            f"a witness saw another entry {checkpoint.seq}, or it is missing"
        )


def _is_missing(tx: Transaction, checkpoint: Checkpoint) -> bool:
    """Return whether a witness saw an entry that is neither here nor acknowledged as lost."""
    if not checkpoint.seq or not signing.is_signature_valid(
        checkpoint.key, checkpoint.hash, checkpoint.signature
    ):
        return False
    rows = change_log.list_rows_from(tx, checkpoint.seq, limit=1)
    if rows and (rows[0][0], rows[0][_HASH]) == (checkpoint.seq, checkpoint.hash):
        return False
    loss = find_loss_of_checkpoint(list_losses(tx), checkpoint)
    return loss is None or not loss.is_acknowledged


def _list_signed_entries(
    tx: Transaction, kind: str, keys: Sequence[tuple[int, str]]
) -> list[Entry]:
    found = list(change_log.list_entries_since(tx, kind, 0))[::-1]
    return [
        one
        for one in found
        if change_log.is_hash_valid([*vars(one).values()])
        and change_log.is_entry_signed(one, keys)
    ]


def _find_row_fault(row: Sequence[Any], seq: int, prev: str) -> str:
    """Return what is wrong with an entry. row: the members of an Entry, in their order."""
    number, at, _, run, _, _, _, before, _, signature = row
    if number != seq:
        return f"entry {seq} is missing"
    if before != prev:
        return f"entry {seq} does not follow the one before it"
    # SQLite does not enforce types: it stores text in integer columns and the other way round.
    typed = type(number) is type(at) is int and type(run) in _NUMBER_OR_NONE
    if typed and type(signature) is str and change_log.is_hash_valid(row):
        return ""
    return f"entry {seq} was altered: its content does not have its hash"
