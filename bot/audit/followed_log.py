"""What this process knows of the change log: which entries there are about what is still open.

An attacker who writes to the database but has no key cannot write an entry, and can take one out:
that a request was denied, or a person banned. So each process follows the log from its first entry
on, each bound to the one before, and remembers the entries that matter to a decision. What the
gate reads of the log has to hold all of them, with the same hashes.

A run is open from its first entry until it ends, or until its schedule does. Of one that ended
nothing is remembered but that: it does not begin again.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection

from bot.audit import change_log
from bot.audit.change_log import GENESIS, Entry, LogAlteredError
from bot.db.database import SeenHead, StoreUnavailable, Transaction
from bot.model.run import ENDED_STATES

_END_KINDS = frozenset(state.value for state in ENDED_STATES)
_SCHEDULE_END_KINDS = frozenset({"schedule ended", "schedule lapsed"})
# The entries of a run by which it is decided whether it goes on.
DECIDING_KINDS = _END_KINDS | {
    *("requested", "proposed", "accepted", "planned", "escalated", "approved", "started"),
    *("stop requested", "step sending", "step succeeded", "break-glass activated"),
    *("scheduled", "schedule resumed", "schedule suspended", *_SCHEDULE_END_KINDS),
}
# What takes something from somebody for good, or until it is lifted; and by which of its facts it
# names what that is.
_SUBJECT_FACTS = {
    "banned": "banned_person",
    "delegation revoked": "delegation",
    "factor removed": "factor",
    "grant revoked": "grant",
    "token revoked": "token",
}
REVOKING_KINDS = frozenset({"everything stopped", "break-glass activated", *_SUBJECT_FACTS})
# The place of the hash among the members of an entry.
_HASH = 8
# Only the latest of these count.
_USED, _USED_FOR = "grant used", 2 * 3_600_000_000
_BATCH_SIZE = 2000


# Kind, hash, what it is about, and when.
_Revocation = tuple[str, str, str, int]


@dataclass
class LogState:
    """What is known as of one entry. It is not changed: `_following` returns another."""

    seq: int = 0
    hash: str = GENESIS
    open_runs: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    """By each open run, the hashes of its deciding entries by their numbers."""
    child_starts: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    """By each open request for several hosts, where one of its parts started: number, host."""
    runs_of_active_schedules: frozenset[int] = frozenset()
    """Runs whose schedule has not ended."""
    revocations: dict[int, "_Revocation"] = field(default_factory=dict[int, "_Revocation"])
    """Kind and hash of what takes something from somebody, which grant, delegation, token, second
    factor or person it is about, and when."""
    grant_uses: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """Hash and time of each use of a grant that may still count."""
    highest_run: int = 0
    """The highest number of a run so far."""
    unused_runs: frozenset[int] = frozenset()
    """Lower numbers that no entry has named yet."""
    copied_runs: set[int] = field(default_factory=set[int])
    """Open runs whose entries are no other's as well, so that one can be added."""


class _LogFollower:
    """What a process knows, as of the newest durable entry that it followed the log to."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._durable_state = LogState()
        # As of entries that are not durable yet, by the connection that those share who write
        # together.
        self._pending_states: WeakKeyDictionary[Connection, LogState] = WeakKeyDictionary()

    def follow_log(self, tx: Transaction) -> LogState:
        connection = tx.sql
        ahead = self._pending_states.get(connection)
        try:
            found = _follow_to_end(tx, ahead or self._durable_state)
        except LogAlteredError:
            # What others wrote in the same transaction, they may have taken back.
            if ahead is None:
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
            if state.seq > self._durable_state.seq:
                self._durable_state = state


# One for each database that this process has opened.
_FOLLOWERS: WeakKeyDictionary[SeenHead, _LogFollower] = WeakKeyDictionary()
_STATES: WeakKeyDictionary[Transaction, LogState] = WeakKeyDictionary()


def follow_log(tx: Transaction) -> LogState | None:
    """Return what is known with the newest entry there is; None where there is no key: nothing is
    decided there. Raises LogAltered.

    Call it before you read entries: those that come later are not looked for among them.
    """
    if tx not in _STATES:
        try:
            tx.seal  # noqa: B018 - it raises
        except StoreUnavailable:
            return None
        memory = _FOLLOWERS.setdefault(tx.seen_head, _LogFollower())
        _STATES[tx] = memory.follow_log(tx)
    return _STATES[tx]


def find_missing_entry_of_run(
    log_state: LogState | None, run: int, entries: Iterable[Entry]
) -> str:
    """Say what the log lacks of an open run; "" if nothing. entries: all that were read of it."""
    if log_state is None:
        return ""
    read = {e.seq: e.hash for e in entries if e.kind in DECIDING_KINDS and e.seq <= log_state.seq}
    mine = log_state.open_runs.get(run)
    if mine is None:
        is_new = run > log_state.highest_run or run in log_state.unused_runs
        return "" if is_new and not read else "that it has not ended before"
    wrong = sorted(seq for seq in {*read, *mine} if read.get(seq) != mine.get(seq))
    if not wrong:
        return ""
    return f"all that was decided on it: entry {wrong[0]} was taken out or altered"


def find_missing_child_start(
    log_state: LogState | None, parent: int, host: str, entries: Iterable[Entry]
) -> str:
    """Say what the log lacks of the starts of a request on one host. entries: those read."""
    if log_state is None:
        return ""
    begun = {seq for seq, at in log_state.child_starts.get(parent, {}).items() if at == host}
    wrong = sorted(begun - {entry.seq for entry in entries})
    return f"which of its parts were begun: entry {wrong[0]} was taken out" if wrong else ""


def check_revocations(
    log_state: LogState | None,
    kinds: Collection[str],
    entries: Iterable[Entry],
    *,
    subject: str = "",
) -> None:
    """Raise LogAltered unless every entry of these kinds is among those that were read.

    about: only those about this grant, delegation, token, second factor or person.
    """
    if log_state is None:
        return
    read = {entry.seq: entry.hash for entry in entries}
    for seq, (kind, digest, whom, _) in log_state.revocations.items():
        if kind in kinds and subject in {"", whom} and read.get(seq) != digest:
            raise LogAlteredError(f"entry {seq} ({kind}) was taken out or altered")


def find_known_revocation_time(
    tx: Transaction, kind: str, subject: str, *, since: int
) -> int | None:
    """Return when an entry of this kind about it was written that this process has followed,
    whether it still stands in the log or not; None if there is none since then.

    It reads nothing, so it also serves where the log has no key.
    """
    memory = _FOLLOWERS.get(tx.seen_head)
    taking = memory.known.revocations.values() if memory is not None else ()
    ends = [at for each, _, whom, at in taking if (each, whom) == (kind, subject) and at >= since]
    return min(ends, default=None)


def check_grant_uses(log_state: LogState | None, since: int, entries: Iterable[Entry]) -> None:
    """Raise LogAltered unless every use of a grant since then is among those that were read."""
    if log_state is None:
        return
    read = {entry.seq: entry.hash for entry in entries}
    for seq, (digest, at) in log_state.grant_uses.items():
        if at > since and read.get(seq) != digest:
            raise LogAlteredError(f"entry {seq} ({_USED}) was taken out or altered")


def _follow_to_end(tx: Transaction, state_before: LogState) -> LogState:
    """Follow the log from there to its end, and return what is known then."""
    # Others may write more, and be done, while this reads.
    seen, known, row = tx.seen_head.head, state_before, None
    while True:
        rows = change_log.list_rows_from(tx, known.seq, limit=_BATCH_SIZE)
        if known.seq and (not rows or (rows[0][0], rows[0][_HASH]) != (known.seq, known.hash)):
            raise LogAlteredError(f"entry {known.seq} is not the one that Keyturn has read")
        new = rows[1:] if known.seq else rows
        if not new:
            break
        if known is state_before:
            known = _copy_state(state_before)
        for row in new:
            _add_entry(known, row, seen)
    if known.seq < seen[0]:
        raise change_log.LogShortenedError(known.seq, seen[0])
    if row is not None and known.seq > seen[0]:
        change_log.check_row_signature(tx, row)
    return known


def _copy_state(log_state: LogState) -> LogState:
    return replace(
        log_state,
        open_runs=dict(log_state.open_runs),
        child_starts=dict(log_state.child_starts),
        revocations=dict(log_state.revocations),
        grant_uses=dict(log_state.grant_uses),
        copied_runs=set(),
    )


def _add_entry(log_state: LogState, row: Sequence[Any], written_head: tuple[int, str]) -> None:
    """Take up one more entry. seen: number and hash of one that this process has written."""
    seq, at, kind, run, person, host, body, prev, digest, _ = row
    if seq != log_state.seq + 1:
        raise LogAlteredError(f"entry {log_state.seq + 1} is missing")
    if prev != log_state.hash or not change_log.is_hash_valid(row):
        raise LogAlteredError(f"entry {seq} was altered, or the one before it")
    if seq == written_head[0] and digest != written_head[1]:
        raise LogAlteredError(f"entry {seq} is not the one that Keyturn has written")
    log_state.seq, log_state.hash = seq, digest
    if kind in REVOKING_KINDS:
        about = Entry(*row).facts.get(_SUBJECT_FACTS[kind]) if kind in _SUBJECT_FACTS else person
        log_state.revocations[seq] = kind, digest, str(about), at
    if kind == _USED:
        log_state.grant_uses = {
            n: use for n, use in log_state.grant_uses.items() if use[1] > at - _USED_FOR
        }
        log_state.grant_uses[seq] = digest, at
    if (
        kind == "started"
        and '"parent_run":' in body
        and (parent := Entry(*row).facts.get("parent_run"))
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
    if kind == "scheduled":
        log_state.runs_of_active_schedules |= {run}
    if kind in _SCHEDULE_END_KINDS:
        log_state.runs_of_active_schedules -= {run}
    over = kind in _SCHEDULE_END_KINDS or (
        kind in _END_KINDS and run not in log_state.runs_of_active_schedules
    )
    if over:
        del log_state.open_runs[run]
        log_state.child_starts.pop(run, None)
