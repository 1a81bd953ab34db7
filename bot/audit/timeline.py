"""What changed around a moment: the runs and all else that may have to do with it, ranked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import select

from bot.audit.change_log import Entry
from bot.audit.inbound_events import EVENT_KIND
from bot.db import runs, tables, view_conditions
from bot.db.database import Transaction
from bot.model import host_patterns
from bot.model.run import ENDED_STATES, NEEDS_ATTENTION, Decision, Run, State, format_approvers
from bot.model.text import escape_to_one_line

# Of a busy time, so many entries are looked at, those nearest to the moment.
_MAX_ENTRIES = 5_000
_BATCH_SIZE = 500
_DAY = 86_400_000_000
_UNFINISHED_STATES = frozenset({State.STARTING, State.RUNNING, State.UNKNOWN})
_MAX_CHECKS = 50
_FIRE_KINDS = {"fires missed", "fire skipped"}
# What concerns every host, though it names none.
_GLOBAL_EVENT_TITLES = {
    "policy changed": "the policy changed",
    "policy invalid": "there was no valid policy",
    "everything stopped": "everything was stopped",
    "everything resumed": "what was stopped went on",
    "logging failed": "the change log could not be written",
}


@dataclass(frozen=True)
class TimelineEvent:
    """One thing that happened. at: microseconds, the moment of it that is nearest.

    outcome: how it ended, in one sentence.
    rank: 0 it changed a host; 1 it was attempted; 2 a schedule did not fire, a check found
    something, or it happened outside; 3 it concerns all.
    overlap: how many of the hosts that were asked about.
    entry: the number of the one of the change log that tells of it, where it is no run's.
    """

    at: int
    rank: int
    overlap: int
    what: str
    hosts: tuple[str, ...]
    person: str
    run: int | None = None
    state: str = ""
    entry: int | None = None
    outcome: str = ""


@dataclass(frozen=True)
class Timeline:
    """What was found. left_out: how many that are less likely are not among the happenings.

    within: how far around the moment the log was looked at: less than was asked for where it has
    more entries than are looked at. Microseconds.
    """

    events: Sequence[TimelineEvent]
    omitted: int
    searched_span: int


def build_timeline(
    tx: Transaction, at: int, *, span: int, host_pattern: str = "*", limit: int = 50
) -> Timeline:
    """Return what happened up to *within* before and after, by how likely it has to do with it.

    host: names, or patterns such as `web*`, apart by spaces or commas. First what has most hosts
    in common with it, then what changed something, what was attempted, and what else was seen;
    then what is nearest.
    """
    entries, reach = _find_nearest_entries(tx, at, span)
    found = [
        *_iterate_run_events(tx, entries, at, span, host_pattern),
        *_iterate_fire_events(tx, entries, host_pattern),
    ]
    found += _iterate_check_events(tx, entries, host_pattern)
    found += [
        _build_outside_event(entry, host_pattern)
        for entry in entries
        if _is_matching_outside_event(entry, host_pattern)
    ]
    found += [
        _build_global_event(entry) for entry in entries if entry.kind in _GLOBAL_EVENT_TITLES
    ]
    found.sort(key=lambda one: (-one.overlap, one.rank, abs(one.at - at), -(one.run or 0)))
    return Timeline(found[:limit], max(len(found) - limit, 0), reach)


def list_approvals(tx: Transaction, events: Sequence[TimelineEvent]) -> dict[int, list[Decision]]:
    """Return the approvals of what happened, by run; a run without any is left out.

    What is done on one of several hosts was allowed with the request for all of them.
    """
    known = runs.list_runs(tx, [one.run for one in events if one.run])
    asked = {run.id: run.parent or run.id for run in known}
    votes = runs.list_decisions_on(tx, [*asked.values()])
    given = {
        run: [vote for vote in votes.get(of, ()) if vote.approves] for run, of in asked.items()
    }
    return {run: yes for run, yes in given.items() if yes}


def _find_nearest_entries(tx: Transaction, at: int, span: int) -> tuple[list[Entry], int]:
    """Return the entries that are nearest, the newest first, and how far around that is."""
    column = tables.entry.c
    query = select(tables.entry).where(view_conditions.entries_condition(tx).clause())
    before = query.where(column.at >= at - span, column.at <= at)
    after = query.where(column.at > at, column.at <= at + span)
    sides = (
        before.order_by(column.at.desc(), column.seq.desc()),
        after.order_by(column.at, column.seq),
    )
    found = [Entry(*row) for side in sides for row in tx.sql.execute(side.limit(_MAX_ENTRIES + 1))]
    reach = span
    if len(found) > _MAX_ENTRIES:
        found = sorted(found, key=lambda entry: abs(entry.at - at))[:_MAX_ENTRIES]
        reach = abs(found[-1].at - at)
    return sorted(found, key=lambda entry: (entry.at, entry.seq), reverse=True), reach


def _iterate_run_events(
    tx: Transaction, entries: Sequence[Entry], at: int, span: int, host_pattern: str
) -> Iterable[TimelineEvent]:
    moments: dict[int, list[int]] = {}
    for entry in entries:
        if entry.run is not None and entry.kind not in _FIRE_KINDS:
            moments.setdefault(entry.run, []).append(entry.at)
    for run in _iterate_runs(tx, moments, at, span):
        overlap = _count_matching_hosts(run, host_pattern)
        if run.kind == "change" and overlap and not (run.hosts and run.started_at is None):
            yield _build_run_event(run, moments, at, overlap)


def _iterate_runs(
    tx: Transaction, entry_times: Mapping[int, object], at: int, span: int
) -> Iterable[Run]:
    """Yield the runs that the log tells of then, and those that were under way all the time."""
    numbers = sorted(set(entry_times) | set(_list_runs_spanning(tx, at - span, at + span)))
    for first in range(0, len(numbers), _BATCH_SIZE):
        yield from runs.list_runs(tx, numbers[first : first + _BATCH_SIZE])


def _list_runs_spanning(tx: Transaction, since: int, until: int) -> list[int]:
    column = tables.run.c
    ended = select(column.id).where(
        column.ended_at > until, column.ended_at <= until + _DAY, column.started_at < since
    )
    found = list(tx.sql.execute(ended.limit(_BATCH_SIZE)).scalars())
    going = select(column.id).where(
        column.fan_out_role != tables.PARENT, column.started_at < since
    )
    newest = going.order_by(column.id.desc()).limit(_BATCH_SIZE)
    for state in _UNFINISHED_STATES:
        # One by one, each is looked up by its index: of all runs next to none is under way.
        found += tx.sql.execute(newest.where(column.state == state.value)).scalars()
    return found


def _build_run_event(
    run: Run, entry_times: Mapping[int, Sequence[int]], at: int, overlap: int
) -> TimelineEvent:
    known = [*entry_times.get(run.id, ()), *filter(None, (run.started_at, run.ended_at))]
    nearest = min(known or [run.requested_at], key=lambda one: abs(one - at))
    done = run.started_at is not None or run.state in _UNFINISHED_STATES
    return TimelineEvent(
        nearest,
        0 if done else 1,
        overlap,
        run.title,
        tuple(run.hosts) or (run.host,),
        run.requested_by,
        run.id,
        run.status if run.state in ENDED_STATES or done else f"not yet: {run.state}",
        outcome=run.summary if run.is_ended else "",
    )


def _count_matching_hosts(run: Run, host_pattern: str) -> int:
    return sum(_matches_any_pattern(one, host_pattern) for one in (run.hosts or (run.host,)))


def describe_event(
    event: TimelineEvent,
    decisions: Sequence[Decision] = (),
    person_names: Mapping[str, str] | None = None,
) -> str:
    """Return it on a line: what, on which hosts where that does not say, by whom, and its end.

    names: of people, by their ids; whoever has none there is told by their id.
    """
    hosts = ", ".join(event.hosts[:3]) + (
        f" and {len(event.hosts) - 3} more" * (len(event.hosts) > 3)
    )
    where = "" if len(event.hosts) == 1 and event.hosts[0] in event.what else f" on {hosts}"
    who = f", by {(person_names or {}).get(event.person, event.person)}" if event.person else ""
    approved = format_approvers(decisions, person_names)
    end = f": {event.outcome}" if event.outcome else ""
    return escape_to_one_line(f"{event.what}{where if event.hosts else ''}{who}{approved}{end}")


def _iterate_fire_events(
    tx: Transaction, entries: Sequence[Entry], host_pattern: str
) -> Iterable[TimelineEvent]:
    """Tell of moments that schedules left out: on a host, or on all of the schedule's."""
    told = [entry for entry in entries if entry.kind in _FIRE_KINDS and entry.run is not None]
    asked = {run.id: run for run in runs.list_runs(tx, sorted({entry.run or 0 for entry in told}))}
    for entry in told:
        run = asked.get(entry.run or 0)
        planned = (tuple(run.hosts) or (run.host,)) if run else ()
        hosts = (entry.host,) if entry.host else planned
        overlap = sum(_matches_any_pattern(one, host_pattern) for one in hosts)
        facts = entry.facts
        said = ": ".join(filter(None, (run.title if run else "", str(facts.get("reason") or ""))))
        what = f"schedule {facts.get('schedule')}, {entry.kind}: {said}"
        if overlap:
            yield TimelineEvent(
                entry.at, 2, overlap, what, hosts, entry.person, entry.run, entry.kind, entry.seq
            )


def _iterate_check_events(
    tx: Transaction, entries: Sequence[Entry], host_pattern: str
) -> Iterable[TimelineEvent]:
    """Tell of checks that found something other than they should have."""
    told = [entry for entry in entries if entry.run and entry.kind == State.SUCCEEDED.value]
    asked = runs.list_runs(tx, sorted({entry.run or 0 for entry in told}))
    checks = [run for run in asked if run.kind == "check" and run.status == NEEDS_ATTENTION]
    found = [run for run in checks if _count_matching_hosts(run, host_pattern)]
    for run in found[:_MAX_CHECKS]:
        yield TimelineEvent(
            run.ended_at or run.requested_at,
            2,
            _count_matching_hosts(run, host_pattern),
            run.title,
            tuple(run.hosts) or (run.host,),
            run.requested_by,
            run.id,
            run.status,
            outcome=run.summary,
        )


def _is_matching_outside_event(entry: Entry, host_pattern: str) -> bool:
    hosts = _list_event_hosts(entry)
    return entry.kind == EVENT_KIND and (
        not hosts or any(_matches_any_pattern(one, host_pattern) for one in hosts)
    )


def _build_outside_event(entry: Entry, host_pattern: str) -> TimelineEvent:
    """Tell of something that happened outside. Without hosts it may concern any."""
    facts, hosts = entry.facts, _list_event_hosts(entry)
    what = str(facts.get("title") or "an event")
    overlap = sum(_matches_any_pattern(one, host_pattern) for one in hosts)
    rank = 2 if hosts else 3
    source = str(facts.get("source") or "")
    said = f"{source}: {what}" if source else what
    happened = facts.get("occurred_at")
    return TimelineEvent(
        happened if isinstance(happened, int) else entry.at,
        rank,
        overlap,
        said,
        hosts,
        entry.person,
        entry.run,
        EVENT_KIND,
        entry.seq,
        outcome=str(facts.get("detail") or ""),
    )


def _list_event_hosts(entry: Entry) -> tuple[str, ...]:
    listed = entry.facts.get("hosts") if entry.kind == EVENT_KIND else None
    several = cast("list[object]", listed) if isinstance(listed, list) else []
    return tuple(map(str, several)) or ((entry.host,) if entry.host else ())


def _build_global_event(entry: Entry) -> TimelineEvent:
    what = _GLOBAL_EVENT_TITLES[entry.kind]
    return TimelineEvent(entry.at, 3, 0, what, (), entry.person, entry.run, entry.kind, entry.seq)


def _matches_any_pattern(host: str, patterns: str) -> bool:
    return any(
        host_patterns.matches_pattern(host, one) for one in patterns.replace(",", " ").split()
    )
