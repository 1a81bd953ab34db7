"""Follow the change log: remember its entries about open runs and revocations, to detect removals.

An attacker with write access to the database but without the key cannot add an entry, but can
remove one: that a request was denied, or a person banned. So each process follows the log to the
signed root, and remembers the entries that matter to a decision. It begins at the snapshot of what
another process knew, or at the first entry if there is none. What the gate reads of the log has to
contain all of them, with the same hashes.
"""

from collections.abc import Collection, Iterable
from threading import Lock
from weakref import WeakKeyDictionary

from sqlalchemy import Connection

from bot.audit import change_log, log_snapshot
from bot.audit.change_log import Entry, LogAlteredError
from bot.audit.log_state import DECIDING_KINDS, USED, LogState, add_entry, copy_state
from bot.db.database import SeenHead, Transaction
from bot.model.merkle import Tree

_BATCH_SIZE = 2000
# A start reads this many entries at most, and those of a few seconds.
_SNAPSHOT_AFTER = 5000


class _LogFollower:
    """What this process knows of one log, up to the newest durable entry that it has read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._durable_state = LogState()
        # As of entries that are not durable yet, by the connection that the transactions of one
        # commit share.
        self._pending_states: WeakKeyDictionary[Connection, LogState] = WeakKeyDictionary()

    def follow_log(self, tx: Transaction) -> LogState:
        connection = tx.sql
        pending = self._pending_states.get(connection)
        try:
            found = _follow_to_end(tx, pending or self._durable_state)
        except LogAlteredError:
            # Another writer of the same transaction may have rolled back what it wrote.
            if pending is None:
                raise
            found = _follow_to_end(tx, self._durable_state)
        self._pending_states[connection] = found
        tx.after_commit(lambda: self._keep_durable_state(found))
        return found

    @property
    def known(self) -> LogState:
        return self._durable_state

    def _keep_durable_state(self, state: LogState) -> None:
        with self._lock:
            if state.tree.size > self._durable_state.tree.size:
                self._durable_state = state


# One for each database that this process has opened.
_FOLLOWERS: WeakKeyDictionary[SeenHead, _LogFollower] = WeakKeyDictionary()
_STATES: WeakKeyDictionary[Transaction, LogState] = WeakKeyDictionary()


def follow_log(tx: Transaction) -> LogState | None:
    """Read the log to its end and return what is known of it. Raises LogAlteredError.

    None if this process has no signing key: it decides nothing then. Call it before you read
    entries, so that newer ones are not missed among them.
    """
    if not tx.can_sign:
        return None
    if tx not in _STATES:
        memory = _FOLLOWERS.setdefault(tx.seen_head, _LogFollower())
        _STATES[tx] = memory.follow_log(tx)
    return _STATES[tx]


def keep_snapshot(tx: Transaction, *, after: int = _SNAPSHOT_AFTER) -> None:
    """Store what is known of the log, if the stored snapshot lacks so many entries."""
    log_state = follow_log(tx)
    if log_state and log_snapshot.count_entries_after_snapshot(tx, log_state) >= after:
        log_snapshot.store_snapshot(tx, log_state)


def renew_snapshot(tx: Transaction) -> None:
    """Store what the whole log says, whatever a snapshot said before."""
    log_snapshot.delete_snapshots(tx)
    log_snapshot.store_snapshot(tx, _follow_to_end(tx, LogState()))


def find_missing_entry_of_run(
    log_state: LogState | None, run: int, entries: Iterable[Entry]
) -> str:
    """Return what the log lacks of an open run; "" if nothing. entries: all that were read."""
    if log_state is None:
        return ""
    read = {
        e.seq: e.hash for e in entries if e.kind in DECIDING_KINDS and e.seq <= log_state.tree.size
    }
    mine = log_state.open_runs.get(run)
    if mine is None:
        is_new = run > log_state.highest_run or run in log_state.unused_runs
        return "" if is_new and not read else "that it has not ended before"
    wrong = sorted(seq for seq in {*read, *mine} if read.get(seq) != mine.get(seq))
    if not wrong:
        return ""
    return f"every decision on it: entry {wrong[0]} was removed or altered"


def find_missing_child_start(
    log_state: LogState | None, parent: int, host: str, entries: Iterable[Entry]
) -> str:
    """Return what the log lacks of the starts of a child run. entries: all that were read."""
    if log_state is None:
        return ""
    started = {seq for seq, at in log_state.child_starts.get(parent, {}).items() if at == host}
    wrong = sorted(started - {entry.seq for entry in entries})
    return f"which of its child runs started: entry {wrong[0]} was removed" if wrong else ""


def check_revocations(
    log_state: LogState | None,
    kinds: Collection[str],
    entries: Iterable[Entry],
    *,
    subject: str = "",
) -> None:
    """Raise LogAlteredError unless *entries* contains every entry of these kinds.

    subject: only those about this grant, delegation, token, second factor or person.
    """
    if log_state is None:
        return
    read = {entry.seq: entry.hash for entry in entries}
    for seq, (kind, digest, about, _) in log_state.revocations.items():
        if kind in kinds and subject in {"", about} and read.get(seq) != digest:
            raise LogAlteredError(f"entry {seq} ({kind}) was removed or altered")


def find_known_revocation_time(
    tx: Transaction, kind: str, subject: str, *, since: int
) -> int | None:
    """Return when this process first read an entry of this kind about the subject since then.

    None if there is none. An entry that was removed from the log counts as well. This reads
    nothing, so it also works without a signing key.
    """
    memory = _FOLLOWERS.get(tx.seen_head)
    revocations = memory.known.revocations.values() if memory is not None else ()
    ends = [
        at
        for each, _, about, at in revocations
        if (each, about) == (kind, subject) and at >= since
    ]
    return min(ends, default=None)


def list_revoked(tx: Transaction, kind: str) -> frozenset[str]:
    """Return all that entries of this kind revoke, as the log has it, or as it was read last.

    The latter where a transaction only reads.
    """
    memory = _FOLLOWERS.get(tx.seen_head)
    known = follow_log(tx) or (memory.known if memory is not None else LogState())
    return frozenset(about for each, _, about, _ in known.revocations.values() if each == kind)


def check_grant_uses(log_state: LogState | None, since: int, entries: Iterable[Entry]) -> None:
    """Raise LogAlteredError unless *entries* contains every use of a grant since then."""
    if log_state is None:
        return
    read = {entry.seq: entry.hash for entry in entries}
    for seq, (digest, at) in log_state.grant_uses.items():
        if at > since and read.get(seq) != digest:
            raise LogAlteredError(f"entry {seq} ({USED}) was removed or altered")


def _follow_to_end(tx: Transaction, state_before: LogState) -> LogState:
    """Read the log from there to its signed end, and return what is known then."""
    signed = change_log.get_verified_tree(tx)
    read = state_before.tree
    if signed.size < read.size:
        raise change_log.LogShortenedError(signed.size, read.size)
    if signed.size == read.size:
        _check_tree(read, signed)
        return state_before
    if not read.size:
        state_before = log_snapshot.load_snapshot(tx, signed.size) or state_before
    known = copy_state(state_before)
    while known.tree.size < signed.size:
        first = known.tree.size
        limit = min(_BATCH_SIZE, signed.size - first)
        rows = change_log.list_rows_after(tx, first, limit=limit)
        if len(rows) < limit:
            raise LogAlteredError(f"an entry after {first} is missing")
        for seq, row in enumerate(rows, start=first + 1):
            add_entry(known, row, seq)
        known.tree = known.tree.add_leaves([bytes.fromhex(row[-1]) for row in rows])
    _check_tree(known.tree, signed)
    return known


def _check_tree(read: Tree, signed: Tree) -> None:
    if read != signed:
        raise LogAlteredError(f"an entry up to {signed.size} is not the one that Keyturn wrote")
