"""Verification of the change log: every hash, the signed roots, and the witnesses."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from bot.audit import change_log, events, inclusion, output_check
from bot.audit.change_log import Entry, EntryDraft, LogAlteredError
from bot.audit.checkpoints import (
    Checkpoint,
    encode_root,
    is_signed_by,
    name_log,
    parse_note,
    sign_checkpoint,
)
from bot.db.database import Database, Transaction
from bot.model import signing
from bot.model.merkle import Tree
from bot.model.progress import BeginStage, begin_silent_stage, iterate_with_progress
from bot.model.signing import SigningKey
from bot.model.verifier_keys import ED25519, VerifierKey
from connectors.errors import DomainError

# The indexes of the members of a row that verification reads; an index is faster than a name.
_KIND, _BODY, _HASH = 2, 6, 7
_NUMBER_OR_NONE = (int, type(None))
_VERIFICATION_LOCK = Lock()


class VerificationInProgress(DomainError):
    """The whole log is being verified already."""

    code, status = "verification-in-progress", 409


@dataclass(frozen=True)
class Verification:
    """The result of a verification."""

    entries: int
    """How many entries from the beginning are intact."""
    root: str
    """The root over these, in base64."""
    broken: int | None = None
    """The number of the first entry that is wrong; None if the log is intact."""
    why: str = ""
    """What is wrong with it."""
    keys: tuple[str, ...] = ()
    """All public keys of the log in their order; each also signed where the next one begins."""
    lost: int = 0
    """How many checkpoints of witnesses are of entries that a restore lost, as the log records."""

    @property
    def key(self) -> str:
        """The public key in use at the end."""
        return self.keys[-1] if self.keys else ""


_EMPTY = Verification(0, encode_root(Tree()))


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

    The new key vouches for every entry before it, so the whole log is verified first, with each
    signature. Raises KeyFileError if anything is wrong.
    """
    change_log.lock_log(tx)
    verdict = verify_log(tx, witnesses=witnesses, every=True, stages=stages)
    if verdict.broken is not None or verdict.key != tx.signing_key.public_key:
        raise signing.KeyFileError(
            f"the change log is broken ({verdict.why or 'another key signs it'}), so its key "
            "cannot be changed. Run `keyturn changelog verify`"
        )
    added = EntryDraft(events.KeyAdded(public=new_key.public_key))
    change_log.append_entries(tx, [added], new_key)
    tx.set_signing_key(new_key)


def create_checkpoint(tx: Transaction) -> Checkpoint:
    """Return the newest checkpoint, in a transaction that writes.

    A root from the database is never signed again, because an attacker may have put it there.
    Raises LogAlteredError.
    """
    change_log.lock_log(tx)
    return change_log.get_newest_checkpoint(tx) or sign_checkpoint(
        name_log(tx.signing_key.public_key), Tree(), tx.now, (tx.signing_key,)
    )


def verify_log(
    tx: Transaction,
    *,
    required_key: str = "",
    witnesses: Sequence[Checkpoint] = (),
    every: bool = False,
    stages: BeginStage = begin_silent_stage,
) -> Verification:
    """Recompute every hash and every root, and compare with the checkpoints and the witnesses.

    The last signature covers all entries. If it is wrong, all signatures are checked, to find the
    first entry that is not signed.

    Args:
        required_key: A public key that has to be one of the keys of the log.
        witnesses: The checkpoints that witnesses hold.
        every: Check the signature of every checkpoint.
    """
    sizes = frozenset(point.size for point in witnesses)
    verifier = _verify_rows(tx, sizes, stages, every=every)
    compared = _compare_with_witnesses(tx, verifier.result, verifier.roots, witnesses)
    found = _verify_outputs(tx, compared, verifier.bound, stages)
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


def verify_entries(tx: Transaction, tree: Tree, after: int, *, limit: int) -> None:
    """Verify the entries after this number that are in a tree. Raises LogAlteredError."""
    end = min(after + limit, tree.size)
    entries = change_log.list_entries_after(tx, after, limit=end - after)
    for seq, entry in enumerate(entries, start=after + 1):
        if why := _find_row_fault([*vars(entry).values()], seq):
            raise LogAlteredError(why)
    if after + len(entries) < end:
        raise LogAlteredError(f"entry {after + len(entries) + 1} is missing")
    included = inclusion.list_included_entries(tx, tree, entries)
    if len(included) < len(entries):
        wrong = next(one for one in entries if one not in included)
        raise LogAlteredError(f"entry {wrong.seq} is not the one that Keyturn wrote")


def verify_newest_entries(
    tx: Transaction, *, limit: int, witnesses: Sequence[Checkpoint] = ()
) -> Verification:
    """Verify the newest entries with their signatures.

    Checkpoints of older entries are only compared with the length of the log.
    """
    entries = change_log.list_newest_entries(tx, limit=limit)[::-1]
    if not entries:
        return _compare_with_witnesses(tx, _EMPTY, {}, witnesses)
    first = entries[0].seq
    for seq, entry in enumerate(entries, start=first):
        if why := _find_row_fault(list(vars(entry).values()), seq):
            return Verification(seq - 1, "", broken=seq, why=why)
    point = change_log.get_newest_checkpoint(tx)
    size = entries[-1].seq
    try:
        tree = change_log.build_tree(tx, size)
        root = encode_root(tree)
        key = _get_newest_key(tx)
        if point is None or point.size != size or point.root != root:
            return Verification(size, "", broken=size, why=f"no checkpoint signs entry {size}")
        if not is_signed_by(point, key):
            return Verification(size, root, broken=size, why=_describe_unsigned(size))
        if len(inclusion.list_included_entries(tx, tree, entries)) < len(entries):
            raise LogAlteredError("an entry is not in the tree")
        near = [one for one in witnesses if one.size <= size]
        roots = {one.size: encode_root(change_log.build_tree(tx, one.size)) for one in near}
    except LogAlteredError as error:
        return Verification(first - 1, "", broken=first, why=error.reason)
    found = Verification(size, root, keys=(key,))
    return _compare_with_witnesses(tx, found, roots, witnesses)


def get_verifier_key(tx: Transaction) -> VerifierKey | None:
    """Return the name of the log with the key that signs it now; None without one."""
    first, newest = change_log.get_first_entry(tx), _get_newest_key(tx)
    if first is None or not newest:
        return None
    return VerifierKey(name_log(change_log.get_added_key(first)), ED25519, newest)


def _get_newest_key(tx: Transaction) -> str:
    last = change_log.get_last_entry_of_kind(tx, events.KeyAdded.kind)
    return change_log.get_added_key(last) if last else ""


def _describe_unsigned(seq: int) -> str:
    return f"entry {seq} is not signed by the key of the log"


def _verify_outputs(
    tx: Transaction, verification: Verification, bound_count: int, stages: BeginStage
) -> Verification:
    """Compare the stored output with the hashes in the log."""
    if verification.broken is not None:
        return verification
    with stages("verifying outputs", lambda: bound_count) as report_progress:
        for seq, why, _ in output_check.check_outputs(tx, bound_count, report_progress):
            if why:
                return replace(verification, broken=seq, why=why)
    return verification


def _verify_rows(
    tx: Transaction, sizes: Collection[int], stages: BeginStage, *, every: bool = False
) -> "_Verifier":
    stage = stages("verifying", lambda: change_log.get_head(tx)[0])
    with stage as report_progress, change_log.read_rows(tx) as rows:
        verifier = _Verifier(sizes, every=every)
        verifier.verify(iterate_with_progress(rows, report_progress))
    if verifier.is_end_unsigned and not every:
        return _verify_rows(tx, sizes, stages, every=True)
    return verifier


class _Verifier:
    """Verifies the rows of the log in their order, and each checkpoint on the way."""

    def __init__(self, sizes: Collection[int], *, every: bool) -> None:
        """sizes: those whose roots are kept, for witnesses. every: check every signature."""
        self._sizes, self._every = sizes, every
        self._tree, self._leaves = Tree(), list[bytes]()
        self._keys, self._signed = list[str](), 0
        self._last: Checkpoint | None = None
        self.is_end_unsigned = False
        """Whether all roots are right, but the last one is not signed."""
        self.roots: dict[int, str] = {}
        self.bound = 0
        """How many entries bind output."""
        self.result = _EMPTY

    def verify(self, rows: Iterable[Sequence[Any]]) -> None:
        """rows: the members of entries in their order, and the note of the checkpoint."""
        seq, why = 0, ""
        for seq, (*row, note) in enumerate(rows, start=1):
            if why := _find_row_fault(row, seq) or self._find_key_fault(row, note):
                self._end(seq, why)
                return
            self._leaves.append(bytes.fromhex(row[_HASH]))
            self.bound += output_check.BINDING_MARK in row[_BODY]
            if seq in self._sizes:
                self.roots[seq] = self._compute_root()
            if note is None:
                continue
            adds_key = row[_KIND] == events.KeyAdded.kind
            point = parse_note(str(note))
            if why := self._find_checkpoint_fault(point, seq, adds_key=adds_key):
                self._end(self._signed + 1, why)
                return
            self._signed, self._last = seq, point
        self._verify_end(seq)

    def _verify_end(self, seq: int) -> None:
        if self._signed < seq:
            self._end(self._signed + 1, _describe_unsigned(self._signed + 1))
        elif self._last is not None and not is_signed_by(self._last, self._keys[-1]):
            self.is_end_unsigned = True
            self._end(seq, _describe_unsigned(seq))
        else:
            self.result = Verification(seq, self._compute_root(), keys=tuple(self._keys))

    def _end(self, broken: int, why: str) -> None:
        self.result = Verification(broken - 1, "", keys=tuple(self._keys), broken=broken, why=why)

    def _compute_root(self) -> str:
        self._tree = self._tree.add_leaves(self._leaves)
        self._leaves.clear()
        return encode_root(self._tree)

    def _find_key_fault(self, row: Sequence[Any], note: object) -> str:
        """Return what is wrong with an entry that adds a key, or that no key is known yet."""
        seq = row[0]
        if row[_KIND] != events.KeyAdded.kind:
            return "" if self._keys else _describe_unsigned(seq)
        self._keys.append(change_log.get_added_key(Entry(*row)))
        # The checkpoint of a new key is its own, and has the signature of the key before, too.
        return "" if seq == 1 or note is not None else _describe_unsigned(seq)

    def _find_checkpoint_fault(self, point: Checkpoint | None, seq: int, *, adds_key: bool) -> str:
        key = self._keys[-1]
        if point is None or (point.origin, point.size) != (name_log(self._keys[0]), seq):
            return f"the checkpoint of entry {seq} was altered"
        if point.root != self._compute_root():
            if not any(is_signed_by(point, one) for one in self._keys):
                return f"the checkpoint of entry {seq} was altered"
            first = self._signed + 1
            named = f"entry {seq} was" if first == seq else f"entries {first} to {seq} were"
            return f"{named} altered: the checkpoint has another root"
        if adds_key and seq > 1:
            if not is_signed_by(point, self._keys[-2]):
                return _describe_unsigned(seq)
            if not is_signed_by(point, key):
                return f"entry {seq} names a key whose owner did not sign"
        return "" if not self._every or is_signed_by(point, key) else _describe_unsigned(seq)


def _compare_with_witnesses(
    tx: Transaction,
    verification: Verification,
    roots: Mapping[int, str],
    witnesses: Sequence[Checkpoint],
) -> Verification:
    """Compare the log with the checkpoints of witnesses: it may be cut off, restored or forked."""
    if verification.broken is not None or not witnesses:
        return verification
    losses, lost, unacknowledged = list_losses(tx), 0, list[tuple[LogLoss, int]]()
    for point in sorted(witnesses, key=lambda point: point.size):
        if not point.size or roots.get(point.size) == point.root:
            continue
        loss = find_loss_of_checkpoint(losses, point)
        if loss is None:
            why = _describe_difference(verification, point)
            return replace(verification, broken=min(point.size, verification.entries + 1), why=why)
        lost += 1
        if not loss.is_acknowledged:
            unacknowledged.append((loss, point.size))
    if not unacknowledged:
        return replace(verification, lost=lost)
    first, last = unacknowledged[0][0].first, unacknowledged[-1][1]
    why = (
        f"entries {first} to {last}, which witnesses saw, were lost when a backup was restored, "
        "and no one has acknowledged that. Find out what they were, then run `keyturn changelog "
        f"acknowledge {first} --lost {last - first + 1}`"
    )
    return replace(verification, broken=first, why=why, lost=lost)


def _describe_difference(verification: Verification, checkpoint: Checkpoint) -> str:
    size = checkpoint.size
    if not any(is_signed_by(checkpoint, key) for key in verification.keys):
        return f"another history: no key of this log signed the witness's checkpoint {size}"
    if size <= verification.entries:
        return f"another history: a witness saw other entries up to {size}"
    return (
        f"cut off: a witness saw entry {size}, and the log ends at {verification.entries} (was a "
        "backup restored?)"
    )


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
    found = [
        LogLoss(one.seq, None, one.at) for one in _list_logged_entries(tx, events.Restored.kind)
    ]
    for one in _list_logged_entries(tx, events.LossAcknowledged.kind):
        loss = one.event
        if isinstance(loss, events.LossAcknowledged):
            found.insert(0, LogLoss(loss.first, loss.first + loss.lost - 1, one.at))
    return found


def find_loss_of_checkpoint(losses: Sequence[LogLoss], checkpoint: Checkpoint) -> LogLoss | None:
    """Return the loss that a checkpoint belongs to; None if it belongs to none."""
    for loss in losses:
        last = checkpoint.size if loss.last is None else loss.last
        if loss.first <= checkpoint.size <= last and checkpoint.at <= loss.until:
            return loss
    return None


def check_witness(tx: Transaction, checkpoint: Checkpoint) -> None:
    """Raise LogAlteredError if the log lacks what a witness saw without a record of the loss."""
    if has_entries_of(tx, checkpoint):
        return
    if find_loss_of_checkpoint(list_losses(tx), checkpoint) is None:
        raise LogAlteredError(
            f"a witness saw other entries up to {checkpoint.size}, or some are missing"
        )


def has_entries_of(tx: Transaction, checkpoint: Checkpoint) -> bool:
    """Return whether the log holds every entry that a witness saw. Checks no signature."""
    try:
        if checkpoint.size:
            change_log.build_tree_of(tx, checkpoint)
    except LogAlteredError:
        return False
    return True


def _list_logged_entries(tx: Transaction, kind: str) -> list[Entry]:
    """Return the entries of a kind that are in the tree, the oldest first."""
    found = list(change_log.list_entries_since(tx, kind, 0))[::-1]
    intact = [one for one in found if change_log.is_hash_valid([*vars(one).values()])]
    if not intact:
        return []
    tree = change_log.build_tree(tx, change_log.get_head(tx)[0])
    return inclusion.list_included_entries(tx, tree, intact)


def _find_row_fault(row: Sequence[Any], seq: int) -> str:
    """Return what is wrong with an entry. row: the members of an Entry, in their order."""
    number, at, _, run, _, _, _, digest = row
    if number != seq:
        return f"entry {seq} is missing"
    # SQLite does not enforce types: it stores text in integer columns and the other way round.
    typed = type(number) is type(at) is int and type(run) in _NUMBER_OR_NONE
    if typed and type(digest) is str and change_log.is_hash_valid(row):
        return ""
    return f"entry {seq} was altered: its content does not have its hash"
