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
from bot.audit.change_log import GENESIS, Entry, LogAltered
from bot.db.database import SeenHead, StoreUnavailable, Transaction
from bot.model.run import ENDED

_ENDS = frozenset(state.value for state in ENDED)
_ENDS_OF_SCHEDULES = frozenset({"schedule ended", "schedule lapsed"})
# The entries of a run by which it is decided whether it goes on.
DECIDING = _ENDS | {
    *("asked", "proposed", "accepted", "planned", "escalated", "approved", "started"),
    *("stop asked", "sending", "step succeeded", "glass broken"),
    *("scheduled", "schedule resumed", "schedule suspended", *_ENDS_OF_SCHEDULES),
}
# What takes something from somebody for good, or until it is lifted; and by which of its facts it
# names what that is.
_NAMED = {
    "banned": "who",
    "delegation revoked": "delegation",
    "factor removed": "factor",
    "grant revoked": "grant",
    "token revoked": "token",
}
TAKING = frozenset({"everything stopped", "glass broken", *_NAMED})
# The place of the hash among the members of an entry.
_HASH = 8
# Only the latest of these count.
_USED, _USED_FOR = "grant used", 2 * 3_600_000_000
_AT_ONCE = 2000


# Kind, hash, what it is about, and when.
_Taking = tuple[str, str, str, int]


@dataclass
class FollowedLog:
    """What is known as of one entry. It is not changed: `_following` returns another."""

    seq: int = 0
    hash: str = GENESIS
    runs: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    """By each open run, the hashes of its deciding entries by their numbers."""
    parts: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    """By each open request for several hosts, where one of its parts started: number, host."""
    scheduled: frozenset[int] = frozenset()
    """Runs whose schedule has not ended."""
    taking: dict[int, "_Taking"] = field(default_factory=dict[int, "_Taking"])
    """Kind and hash of what takes something from somebody, which grant, delegation, token, second
    factor or person it is about, and when."""
    used: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """Hash and time of each use of a grant that may still count."""
    highest: int = 0
    """The highest number of a run so far."""
    skipped: frozenset[int] = frozenset()
    """Lower numbers that no entry has named yet."""
    copied: set[int] = field(default_factory=set[int])
    """Open runs whose entries are no other's as well, so that one can be added."""


class _Memory:
    """What a process knows, as of the newest durable entry that it followed the log to."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known = FollowedLog()
        # As of entries that are not durable yet, by the connection that those share who write
        # together.
        self._ahead: WeakKeyDictionary[Connection, FollowedLog] = WeakKeyDictionary()

    def follow(self, tx: Transaction) -> FollowedLog:
        connection = tx.sql
        ahead = self._ahead.get(connection)
        try:
            found = _following(tx, ahead or self._known)
        except LogAltered:
            # What others wrote in the same transaction, they may have taken back.
            if ahead is None:
                raise
            found = _following(tx, self._known)
        self._ahead[connection] = found
        tx.after_commit(lambda: self._keep(found))
        return found

    @property
    def known(self) -> FollowedLog:
        return self._known

    def _keep(self, found: FollowedLog) -> None:
        with self._lock:
            if found.seq > self._known.seq:
                self._known = found


# One for each database that this process has opened.
_MEMORIES: WeakKeyDictionary[SeenHead, _Memory] = WeakKeyDictionary()
_FOLLOWED: WeakKeyDictionary[Transaction, FollowedLog] = WeakKeyDictionary()


def follow_log(tx: Transaction) -> FollowedLog | None:
    """Return what is known with the newest entry there is; None where there is no key: nothing is
    decided there. Raises LogAltered.

    Call it before you read entries: those that come later are not looked for among them.
    """
    if tx not in _FOLLOWED:
        try:
            tx.seal  # noqa: B018 - it raises
        except StoreUnavailable:
            return None
        memory = _MEMORIES.setdefault(tx.seen_head, _Memory())
        _FOLLOWED[tx] = memory.follow(tx)
    return _FOLLOWED[tx]


def find_missing_of_run(known: FollowedLog | None, run: int, entries: Iterable[Entry]) -> str:
    """Say what the log lacks of an open run; "" if nothing. entries: all that were read of it."""
    if known is None:
        return ""
    read = {e.seq: e.hash for e in entries if e.kind in DECIDING and e.seq <= known.seq}
    mine = known.runs.get(run)
    if mine is None:
        is_new = run > known.highest or run in known.skipped
        return "" if is_new and not read else "that it has not ended before"
    wrong = sorted(seq for seq in {*read, *mine} if read.get(seq) != mine.get(seq))
    if not wrong:
        return ""
    return f"all that was decided on it: entry {wrong[0]} was taken out or altered"


def find_missing_of_children(
    known: FollowedLog | None, whole: int, host: str, entries: Iterable[Entry]
) -> str:
    """Say what the log lacks of the starts of a request on one host. entries: those read."""
    if known is None:
        return ""
    begun = {seq for seq, at in known.parts.get(whole, {}).items() if at == host}
    wrong = sorted(begun - {entry.seq for entry in entries})
    return f"which of its parts were begun: entry {wrong[0]} was taken out" if wrong else ""


def check_taking(
    known: FollowedLog | None, kinds: Collection[str], entries: Iterable[Entry], *, about: str = ""
) -> None:
    """Raise LogAltered unless every entry of these kinds is among those that were read.

    about: only those about this grant, delegation, token, second factor or person.
    """
    if known is None:
        return
    read = {entry.seq: entry.hash for entry in entries}
    for seq, (kind, digest, whom, _) in known.taking.items():
        if kind in kinds and about in {"", whom} and read.get(seq) != digest:
            raise LogAltered(f"entry {seq} ({kind}) was taken out or altered")


def find_known_end(tx: Transaction, kind: str, about: str, *, since: int) -> int | None:
    """Return when an entry of this kind about it was written that this process has followed,
    whether it still stands in the log or not; None if there is none since then.

    It reads nothing, so it also serves where the log has no key.
    """
    memory = _MEMORIES.get(tx.seen_head)
    taking = memory.known.taking.values() if memory is not None else ()
    ends = [at for each, _, whom, at in taking if (each, whom) == (kind, about) and at >= since]
    return min(ends, default=None)


def check_used(known: FollowedLog | None, since: int, entries: Iterable[Entry]) -> None:
    """Raise LogAltered unless every use of a grant since then is among those that were read."""
    if known is None:
        return
    read = {entry.seq: entry.hash for entry in entries}
    for seq, (digest, at) in known.used.items():
        if at > since and read.get(seq) != digest:
            raise LogAltered(f"entry {seq} ({_USED}) was taken out or altered")


def _following(tx: Transaction, before: FollowedLog) -> FollowedLog:
    """Follow the log from there to its end, and return what is known then."""
    # Others may write more, and be done, while this reads.
    seen, known, row = tx.seen_head.head, before, None
    while True:
        rows = change_log.rows_from(tx, known.seq, most=_AT_ONCE)
        if known.seq and (not rows or (rows[0][0], rows[0][_HASH]) != (known.seq, known.hash)):
            raise LogAltered(f"entry {known.seq} is not the one that Keyturn has read")
        new = rows[1:] if known.seq else rows
        if not new:
            break
        if known is before:
            known = _copy(before)
        for row in new:
            _take(known, row, seen)
    if known.seq < seen[0]:
        raise change_log.LogShortened(known.seq, seen[0])
    if row is not None and known.seq > seen[0]:
        change_log.check_signed(tx, row)
    return known


def _copy(known: FollowedLog) -> FollowedLog:
    return replace(
        known,
        runs=dict(known.runs),
        parts=dict(known.parts),
        taking=dict(known.taking),
        used=dict(known.used),
        copied=set(),
    )


def _take(known: FollowedLog, row: Sequence[Any], seen: tuple[int, str]) -> None:
    """Take up one more entry. seen: number and hash of one that this process has written."""
    seq, at, kind, run, person, host, body, prev, digest, _ = row
    if seq != known.seq + 1:
        raise LogAltered(f"entry {known.seq + 1} is missing")
    if prev != known.hash or not change_log.is_hash_valid(row):
        raise LogAltered(f"entry {seq} was altered, or the one before it")
    if seq == seen[0] and digest != seen[1]:
        raise LogAltered(f"entry {seq} is not the one that Keyturn has written")
    known.seq, known.hash = seq, digest
    if kind in TAKING:
        about = Entry(*row).facts.get(_NAMED[kind]) if kind in _NAMED else person
        known.taking[seq] = kind, digest, str(about), at
    if kind == _USED:
        known.used = {n: use for n, use in known.used.items() if use[1] > at - _USED_FOR}
        known.used[seq] = digest, at
    if kind == "started" and '"whole":' in body and (whole := Entry(*row).facts.get("whole")):
        known.parts[whole] = {**known.parts.get(whole, {}), seq: host}
    if type(run) is int:
        _take_run(known, run, seq, kind, digest)


def _take_run(known: FollowedLog, run: int, seq: int, kind: str, digest: str) -> None:
    if run > known.highest:
        known.skipped |= frozenset(range(known.highest + 1, run))
        known.highest = run
        known.runs[run] = {}
    elif run in known.skipped:
        known.skipped -= {run}
        known.runs[run] = {}
    mine = known.runs.get(run)
    if mine is None or kind not in DECIDING:
        return
    if run not in known.copied:
        known.copied.add(run)
        mine = known.runs[run] = dict(mine)
    mine[seq] = digest
    if kind == "scheduled":
        known.scheduled |= {run}
    if kind in _ENDS_OF_SCHEDULES:
        known.scheduled -= {run}
    over = kind in _ENDS_OF_SCHEDULES or (kind in _ENDS and run not in known.scheduled)
    if over:
        del known.runs[run]
        known.parts.pop(run, None)
