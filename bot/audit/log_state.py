"""What a process remembers of the change log, and how each entry changes that.

A run is open from its first entry until it, or its schedule, ends. Of an ended run only the fact
that it ended is remembered: it does not start again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.audit import change_log, events
from bot.audit.change_log import LogAlteredError
from bot.audit.event_type import PERSON, parse_facts
from bot.model.merkle import Tree

# The entries of a run that decide whether it may continue.
DECIDING_KINDS = frozenset(each.kind for each in events.EVENT_TYPES if each.decides)
SCHEDULE_END_KINDS = frozenset({events.ScheduleEnded.kind, events.ScheduleLapsed.kind})
# The fact that holds what an entry revokes, for the kinds that revoke something.
SUBJECT_FACTS = {each.kind: each.revokes for each in events.EVENT_TYPES if each.revokes}
# Only the latest of these count.
USED, _USED_FOR = events.GrantUsed.kind, 2 * 3_600_000_000


# Kind, hash, what it is about, and when.
Revocation = tuple[str, str, str, int]


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
    revocations: dict[int, Revocation] = field(default_factory=dict[int, Revocation])
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


def copy_state(log_state: LogState) -> LogState:
    return replace(
        log_state,
        open_runs=dict(log_state.open_runs),
        child_starts=dict(log_state.child_starts),
        revocations=dict(log_state.revocations),
        grant_uses=dict(log_state.grant_uses),
        copied_runs=set(),
    )


def add_entry(log_state: LogState, row: Sequence[Any], number: int) -> None:
    """Add what one entry says. number: the one that it has to have."""
    seq, at, kind, run, person, host, body, digest = row
    if seq != number:
        raise LogAlteredError(f"entry {number} is missing")
    if not change_log.is_hash_valid(row):
        raise LogAlteredError(f"entry {seq} was altered: its content does not have its hash")
    if (fact := SUBJECT_FACTS.get(kind)) is not None:
        # The fact is read as it is: an entry that this version does not know revokes as well.
        about = person if fact == PERSON else parse_facts(body).get(fact)
        log_state.revocations[seq] = kind, digest, str(about), at
    if kind == USED:
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
    if kind in SCHEDULE_END_KINDS:
        log_state.runs_of_active_schedules -= {run}
    over = kind in SCHEDULE_END_KINDS or (
        kind in events.FINAL_KINDS and run not in log_state.runs_of_active_schedules
    )
    if over:
        del log_state.open_runs[run]
        log_state.child_starts.pop(run, None)
