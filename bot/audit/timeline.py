"""What changed around a moment: the runs and all else that may have to do with it, ranked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import select

from bot.audit.change_log import Entry
from bot.audit.inbound_events import EVENT
from bot.db import runs, tables, view_conditions
from bot.db.database import Transaction
from bot.model import host_patterns
from bot.model.run import ATTENTION, ENDED, Run, State, Vote, format_approvers
from bot.model.text import escape_to_one_line

# Of a busy time, so many entries are looked at, those nearest to the moment.
_MOST_ENTRIES = 5_000
_AT_ONCE = 500
_DAY = 86_400_000_000
_UNDER_WAY = frozenset({State.STARTING, State.RUNNING, State.UNKNOWN})
_MOST_CHECKS = 50
_FIRES = {"fires missed", "fire skipped"}
# What concerns every host, though it names none.
_EVERYWHERE = {
    "policy changed": "the policy changed",
    "policy broken": "there was no valid policy",
    "everything stopped": "everything was stopped",
    "everything resumed": "what was stopped went on",
    "logging trouble": "the change log could not be written",
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

    happenings: Sequence[TimelineEvent]
    left_out: int
    within: int


def build_timeline(
    tx: Transaction, at: int, *, within: int, host: str = "*", most: int = 50
) -> Timeline:
    """Return what happened up to *within* before and after, by how likely it has to do with it.

    host: names, or patterns such as `web*`, apart by spaces or commas. First what has most hosts
    in common with it, then what changed something, what was attempted, and what else was seen;
    then what is nearest.
    """
    entries, reach = _entries(tx, at, within)
    found = [*_of_runs(tx, entries, at, within, host), *_of_fires(tx, entries, host)]
    found += _of_checks(tx, entries, host)
    found += [_of_event(entry, host) for entry in entries if _event_fits(entry, host)]
    found += [_of_entry(entry) for entry in entries if entry.kind in _EVERYWHERE]
    found.sort(key=lambda one: (-one.overlap, one.rank, abs(one.at - at), -(one.run or 0)))
    return Timeline(found[:most], max(len(found) - most, 0), reach)


def list_approvals(tx: Transaction, found: Sequence[TimelineEvent]) -> dict[int, list[Vote]]:
    """Return the approvals of what happened, by run; a run without any is left out.

    What is done on one of several hosts was allowed with the request for all of them.
    """
    known = runs.list_runs(tx, [one.run for one in found if one.run])
    asked = {run.id: run.parent or run.id for run in known}
    votes = runs.list_votes_on(tx, [*asked.values()])
    given = {run: [vote for vote in votes.get(of, ()) if vote.yes] for run, of in asked.items()}
    return {run: yes for run, yes in given.items() if yes}


def _entries(tx: Transaction, at: int, within: int) -> tuple[list[Entry], int]:
    """Return the entries that are nearest, the newest first, and how far around that is."""
    column = tables.entry.c
    query = select(tables.entry).where(view_conditions.entries_condition(tx).clause())
    before = query.where(column.at >= at - within, column.at <= at)
    after = query.where(column.at > at, column.at <= at + within)
    sides = (
        before.order_by(column.at.desc(), column.seq.desc()),
        after.order_by(column.at, column.seq),
    )
    found = [
        Entry(*row) for side in sides for row in tx.sql.execute(side.limit(_MOST_ENTRIES + 1))
    ]
    reach = within
    if len(found) > _MOST_ENTRIES:
        found = sorted(found, key=lambda entry: abs(entry.at - at))[:_MOST_ENTRIES]
        reach = abs(found[-1].at - at)
    return sorted(found, key=lambda entry: (entry.at, entry.seq), reverse=True), reach


def _of_runs(
    tx: Transaction, entries: Sequence[Entry], at: int, within: int, host: str
) -> Iterable[TimelineEvent]:
    moments: dict[int, list[int]] = {}
    for entry in entries:
        if entry.run is not None and entry.kind not in _FIRES:
            moments.setdefault(entry.run, []).append(entry.at)
    for run in _all_of(tx, moments, at, within):
        overlap = _overlap(run, host)
        if run.kind == "change" and overlap and not (run.hosts and run.started is None):
            yield _of_run(run, moments, at, overlap)


def _all_of(tx: Transaction, moments: Mapping[int, object], at: int, within: int) -> Iterable[Run]:
    """Yield the runs that the log tells of then, and those that were under way all the time."""
    numbers = sorted(set(moments) | set(_spanning(tx, at - within, at + within)))
    for first in range(0, len(numbers), _AT_ONCE):
        yield from runs.list_runs(tx, numbers[first : first + _AT_ONCE])


def _spanning(tx: Transaction, since: int, until: int) -> list[int]:
    column = tables.run.c
    ended = select(column.id).where(
        column.ended > until, column.ended <= until + _DAY, column.started < since
    )
    found = list(tx.sql.execute(ended.limit(_AT_ONCE)).scalars())
    going = select(column.id).where(column.place != tables.WHOLE, column.started < since)
    newest = going.order_by(column.id.desc()).limit(_AT_ONCE)
    for state in _UNDER_WAY:
        # One by one, each is looked up by its index: of all runs next to none is under way.
        found += tx.sql.execute(newest.where(column.state == state.value)).scalars()
    return found


def _of_run(
    run: Run, moments: Mapping[int, Sequence[int]], at: int, overlap: int
) -> TimelineEvent:
    known = [*moments.get(run.id, ()), *filter(None, (run.started, run.ended))]
    nearest = min(known or [run.asked], key=lambda one: abs(one - at))
    done = run.started is not None or run.state in _UNDER_WAY
    return TimelineEvent(
        nearest,
        0 if done else 1,
        overlap,
        run.title,
        tuple(run.hosts) or (run.host,),
        run.asked_by,
        run.id,
        run.standing if run.state in ENDED or done else f"not yet: {run.state}",
        outcome=run.summary if run.over else "",
    )


def _overlap(run: Run, host: str) -> int:
    return sum(_fits(one, host) for one in (run.hosts or (run.host,)))


def describe_event(
    one: TimelineEvent, votes: Sequence[Vote] = (), names: Mapping[str, str] | None = None
) -> str:
    """Return it on a line: what, on which hosts where that does not say, by whom, and its end.

    names: of people, by their ids; whoever has none there is told by their id.
    """
    hosts = ", ".join(one.hosts[:3]) + (f" and {len(one.hosts) - 3} more" * (len(one.hosts) > 3))
    where = "" if len(one.hosts) == 1 and one.hosts[0] in one.what else f" on {hosts}"
    who = f", by {(names or {}).get(one.person, one.person)}" if one.person else ""
    end = f": {one.outcome}" if one.outcome else ""
    return escape_to_one_line(
        f"{one.what}{where if one.hosts else ''}{who}{format_approvers(votes, names)}{end}"
    )


def _of_fires(tx: Transaction, entries: Sequence[Entry], host: str) -> Iterable[TimelineEvent]:
    """Tell of moments that schedules left out: on a host, or on all of the schedule's."""
    told = [entry for entry in entries if entry.kind in _FIRES and entry.run is not None]
    asked = {run.id: run for run in runs.list_runs(tx, sorted({entry.run or 0 for entry in told}))}
    for entry in told:
        run = asked.get(entry.run or 0)
        planned = (tuple(run.hosts) or (run.host,)) if run else ()
        hosts = (entry.host,) if entry.host else planned
        overlap = sum(_fits(one, host) for one in hosts)
        facts = entry.facts
        said = ": ".join(filter(None, (run.title if run else "", str(facts.get("why") or ""))))
        what = f"schedule {facts.get('schedule')}, {entry.kind}: {said}"
        if overlap:
            yield TimelineEvent(
                entry.at, 2, overlap, what, hosts, entry.person, entry.run, entry.kind, entry.seq
            )


def _of_checks(tx: Transaction, entries: Sequence[Entry], host: str) -> Iterable[TimelineEvent]:
    """Tell of checks that found something other than they should have."""
    told = [entry for entry in entries if entry.run and entry.kind == State.SUCCEEDED.value]
    asked = runs.list_runs(tx, sorted({entry.run or 0 for entry in told}))
    checks = [run for run in asked if run.kind == "check" and run.standing == ATTENTION]
    found = [run for run in checks if _overlap(run, host)]
    for run in found[:_MOST_CHECKS]:
        yield TimelineEvent(
            run.ended or run.asked,
            2,
            _overlap(run, host),
            run.title,
            tuple(run.hosts) or (run.host,),
            run.asked_by,
            run.id,
            run.standing,
            outcome=run.summary,
        )


def _event_fits(entry: Entry, host: str) -> bool:
    hosts = _hosts_of(entry)
    return entry.kind == EVENT and (not hosts or any(_fits(one, host) for one in hosts))


def _of_event(entry: Entry, host: str) -> TimelineEvent:
    """Tell of something that happened outside. Without hosts it may concern any."""
    facts, hosts = entry.facts, _hosts_of(entry)
    what = str(facts.get("title") or "an event")
    overlap = sum(_fits(one, host) for one in hosts)
    rank = 2 if hosts else 3
    source = str(facts.get("source") or "")
    said = f"{source}: {what}" if source else what
    happened = facts.get("happened")
    return TimelineEvent(
        happened if isinstance(happened, int) else entry.at,
        rank,
        overlap,
        said,
        hosts,
        entry.person,
        entry.run,
        EVENT,
        entry.seq,
        outcome=str(facts.get("detail") or ""),
    )


def _hosts_of(entry: Entry) -> tuple[str, ...]:
    listed = entry.facts.get("hosts") if entry.kind == EVENT else None
    several = cast("list[object]", listed) if isinstance(listed, list) else []
    return tuple(map(str, several)) or ((entry.host,) if entry.host else ())


def _of_entry(entry: Entry) -> TimelineEvent:
    what = _EVERYWHERE[entry.kind]
    return TimelineEvent(entry.at, 3, 0, what, (), entry.person, entry.run, entry.kind, entry.seq)


def _fits(host: str, pattern: str) -> bool:
    return any(
        host_patterns.matches_pattern(host, one) for one in pattern.replace(",", " ").split()
    )
