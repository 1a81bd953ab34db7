"""Follow the change log: remember its entries about open runs and revocations, to detect removals.

An attacker with write access to the database but without the key cannot add an entry, but can
remove one: that a request was denied, or a person banned. So each process follows the log from its
first entry to the signed root, and remembers the entries that matter to a decision.
What the gate reads of the log has to contain all of them, with the same hashes.

A run is open from its first entry until it, or its schedule, ends. Of an ended run only the fact
that it ended is remembered: it does not start again.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection

from bot.audit import change_log, events
from bot.audit.change_log import Entry, LogAlteredError
from bot.audit.event_type import PERSON, parse_facts
from bot.db.database import SeenHead, StoreUnavailable, Transaction
from bot.model.merkle import Tree

_SCHEDULE_END_KINDS = frozenset({events.ScheduleEnded.kind, events.ScheduleLapsed.kind})
# The entries of a run that decide whether it may continue.
DECIDING_KINDS = frozenset(each.kind for each in events.EVENT_TYPES if each.decides)
# The fact that holds what an entry revokes, for the kinds that revoke something.
_SUBJECT_FACTS = {each.kind: each.revokes for each in events.EVENT_TYPES if each.revokes}
# Only the latest of these count.
_USED, _USED_FOR = events.GrantUsed.kind, 2 * 3_600_000_000
_BATCH_SIZE = 2000


# Kind, hash, what it is about, and when.
_Revocation = tuple[str, str, str, int]


@dataclass
class LogState:
    """What is known as of one entry. Not changed after that: `_follow_to_end` returns a copy."""

    tree: Tree = field(default_factory=Tree)
    """The tree of the entries that were read."""
    open_runs: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    """For each open run, the hashes of its deciding entries by their numbers."""
    child_starts: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    """For each open parent run, the hosts whose child run started, by the number of the entry."""
    runs_of_active_schedules: frozenset[int] = frozenset()
    """Runs whose schedule has not ended."""
    revocations: dict[int, "_Revocation"] = field(default_factory=dict[int, "_Revocation"])
    """For each entry that revokes something: kind, hash, subject and time. The subject is a grant,
    delegation, token, second factor or person."""
    grant_uses: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """Hash and time of each use of a grant that may still count."""
    highest_run: int = 0
    """The highest number of a run so far."""
    unused_runs: frozenset[int] = frozenset()
    """Lower numbers that no entry has named so far."""
    copied_runs: set[int] = field(default_factory=set[int])
    """Open runs whose entries this copy owns, so that it can add one."""


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
    if tx not in _STATES:
        try:
            tx.signing_key  # noqa: B018 - it raises
        except StoreUnavailable:
            return None
        memory = _FOLLOWERS.setdefault(tx.seen_head, _LogFollower())
        _STATES[tx] = memory.follow_log(tx)
    return _STATES[tx]


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


def check_grant_uses(log_state: LogState | None, since: int, entries: Iterable[Entry]) -> None:
    """Raise LogAlteredError unless *entries* contains every use of a grant since then."""
    if log_state is None:
        return
    read = {entry.seq: entry.hash for entry in entries}
    for seq, (digest, at) in log_state.grant_uses.items():
        if at > since and read.get(seq) != digest:
            raise LogAlteredError(f"entry {seq} ({_USED}) was removed or altered")


def _follow_to_end(tx: Transaction, state_before: LogState) -> LogState:
    """Read the log from there to its signed end, and return what is known then."""
    signed = change_log.get_verified_tree(tx)
    read = state_before.tree
    if signed.size < read.size:
        raise change_log.LogShortenedError(signed.size, read.size)
    if signed.size == read.size:
        _check_tree(read, signed)
        return state_before
    known = _copy_state(state_before)
    while known.tree.size < signed.size:
        first = known.tree.size
        limit = min(_BATCH_SIZE, signed.size - first)
        rows = change_log.list_rows_after(tx, first, limit=limit)
        if len(rows) < limit:
            raise LogAlteredError(f"an entry after {first} is missing")
        for seq, row in enumerate(rows, start=first + 1):
            _add_entry(known, row, seq)
        known.tree = known.tree.add_leaves([bytes.fromhex(row[-1]) for row in rows])
    _check_tree(known.tree, signed)
    return known


def _check_tree(read: Tree, signed: Tree) -> None:
    if read != signed:
        raise LogAlteredError(f"an entry up to {signed.size} is not the one that Keyturn wrote")


def _copy_state(log_state: LogState) -> LogState:
    return replace(
        log_state,
        open_runs=dict(log_state.open_runs),
        child_starts=dict(log_state.child_starts),
        revocations=dict(log_state.revocations),
        grant_uses=dict(log_state.grant_uses),
        copied_runs=set(),
    )


def _add_entry(log_state: LogState, row: Sequence[Any], number: int) -> None:
    """Add what one entry says. number: the one that it has to have."""
    seq, at, kind, run, person, host, body, digest = row
    if seq != number:
        raise LogAlteredError(f"entry {number} is missing")
    if not change_log.is_hash_valid(row):
        raise LogAlteredError(f"entry {seq} was altered: its content does not have its hash")
    if (fact := _SUBJECT_FACTS.get(kind)) is not None:
        # The fact is read as it is: an entry that this version does not know revokes as well.
        about = person if fact == PERSON else parse_facts(body).get(fact)
        log_state.revocations[seq] = kind, digest, str(about), at
    if kind == _USED:
        log_state.grant_uses = {
            n: use for n, use in log_state.grant_uses.items() if use[1] > at - _USED_FOR
        }
        log_state.grant_uses[seq] = digest, at
    if (
        kind == events.Started.kind
        and '"parent_run":' in body
        and (parent := parse_facts(body).get("parent_run"))
    ):
        log_state.child_starts[parent] = {**log_state.child_starts.get(parent, {}), seq: host}
    if type(run) is int:
        _add_entry_of_run(log_state, run, seq, kind, digest)


def _add_entry_of_run(log_state: LogState, run: int, seq: int, kind: str, entry_hash: str) -> None:
    if run > log_state.highest_run:
        log_state.unused_runs |= frozenset(range(log_state.highest_run + 1, run))
        log_state.highest_run = run
        log_state.open_runs[run] = {}
    elif run in log_state.unused_runs:
        log_state.unused_runs -= {run}
        log_state.open_runs[run] = {}
    mine = log_state.open_runs.get(run)
    if mine is None or kind not in DECIDING_KINDS:
        return
    if run not in log_state.copied_runs:
        log_state.copied_runs.add(run)
        mine = log_state.open_runs[run] = dict(mine)
    mine[seq] = entry_hash
    if kind == events.Scheduled.kind:
        log_state.runs_of_active_schedules |= {run}
    if kind in _SCHEDULE_END_KINDS:
        log_state.runs_of_active_schedules -= {run}
    over = kind in _SCHEDULE_END_KINDS or (
        kind in events.FINAL_KINDS and run not in log_state.runs_of_active_schedules
    )
    if over:
        del log_state.open_runs[run]
        log_state.child_starts.pop(run, None)
