"""The timeline around a time: runs and events that may be related to an incident, ranked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.audit import events
from bot.audit.change_log import Entry
from bot.db import runs, search
from bot.db.database import Transaction
from bot.model import host_patterns
from bot.model.drift_state import DriftState
from bot.model.run import ENDED_STATES, NEEDS_ATTENTION, Decision, Run, State, format_approvers
from bot.model.run_states import RUN_STATUS_DISPLAYS
from bot.model.text import escape_to_one_line
from bot.queries import log_search
from bot.queries.run_timeline import format_kind

_BATCH_SIZE = 500
_UNFINISHED_STATES = frozenset({State.STARTING, State.RUNNING, State.UNKNOWN})
# Of a child run, which waits for its turn in them.
_STATES_BEFORE_TURN = frozenset({State.PLANNING, State.PENDING})
_MAX_CHECKS = 50
_FIRE_KINDS = {events.FiresMissed.kind, events.FireSkipped.kind}
# They name a run, and are no part of it: what its schedule missed, and what happened to its value
# afterwards.
_KINDS_OUTSIDE_RUNS = {
    *_FIRE_KINDS,
    events.DriftFound.kind,
    events.DriftEnded.kind,
    events.DriftAdopted.kind,
    events.DriftExpected.kind,
}
_OFFLINE_KINDS = {events.ChangedOffline.kind, events.OfflineRecordInvalid.kind}
# Whose facts are shown.
_READ_KINDS = {
    *_FIRE_KINDS,
    *_OFFLINE_KINDS,
    events.DriftFound.kind,
    events.ExternalEvent.kind,
}
_DRIFT_TITLES: Mapping[str, str] = {
    DriftState.CHANGED: "changed outside Keyturn",
    DriftState.MISSING: "is missing on the host",
    DriftState.UNREADABLE: "cannot be read",
}
# Events that concern every host although they name none.
_GLOBAL_EVENT_TITLES = {
    events.PolicyChanged.kind: "The policy changed",
    events.PolicyInvalid.kind: "The policy became invalid",
    events.EverythingStopped.kind: "Everything was stopped",
    events.EverythingResumed.kind: "Everything was resumed",
    events.LoggingFailed.kind: "The change log could not be written",
}


@dataclass(frozen=True)
class TimelineEvent:
    """A run or another event on the timeline."""

    at: int
    """Its time that is nearest to the requested one, in microseconds since 1970, UTC."""
    rank: int
    """0: it changed a host; 1: it was attempted; 2: a schedule did not fire, a check needs
    attention, or it is an external event on a host; 3: it concerns every host."""
    overlap: int
    """On how many of the requested hosts it was."""
    what: str
    hosts: tuple[str, ...]
    person: str
    run: int | None = None
    state: str = ""
    entry: int | None = None
    """The number of its entry in the change log; None for a run."""
    outcome: str = ""
    """How it ended, in one sentence."""
    has_started: bool = True
    """False for a run that was requested, and neither started nor ended."""

    @property
    def label(self) -> str:
        """The state of the run, or the kind of the entry, for people."""
        display = RUN_STATUS_DISPLAYS.get(self.state)
        return display.label if display else format_kind(self.state)

    @property
    def is_from_outside(self) -> bool:
        """Whether a host was changed outside Keyturn."""
        return self.state == events.DriftFound.kind


@dataclass(frozen=True)
class Timeline:
    """The events around a time, the most likely causes first."""

    events: Sequence[TimelineEvent]
    omitted: int
    """How many less likely events are left out."""
    searched_span: int
    """How far around the time the log was searched, in microseconds: less than requested if the
    log has more entries than are read."""


def build_timeline(
    tx: Transaction, at: int, *, span: int, host_pattern: str = "*", limit: int = 50
) -> Timeline:
    """Return the events up to *span* before and after a time, the most likely causes first.

    host_pattern: names or patterns such as `web*`, separated by spaces or commas. What changed
    hosts comes first, then what was attempted, then findings: of each, first events on the most of
    these hosts, then the nearest in time.
    """
    entries, reach = log_search.find_nearest_entries(tx, at, span)
    found = [
        *_iterate_run_events(tx, entries, at, span, host_pattern),
        *_iterate_fire_events(tx, entries, host_pattern),
    ]
    found += _iterate_check_events(tx, entries, host_pattern)
    found += _iterate_drift_events(entries, host_pattern)
    found += _iterate_external_events(entries, host_pattern)
    found += _iterate_offline_events(entries, host_pattern)
    found += _iterate_damaged_events(entries, host_pattern)
    found += [
        _build_global_event(entry) for entry in entries if entry.kind in _GLOBAL_EVENT_TITLES
    ]
    found.sort(key=lambda one: (one.rank, -one.overlap, abs(one.at - at), -(one.run or 0)))
    return Timeline(found[:limit], max(len(found) - limit, 0), reach)


def list_approvals(tx: Transaction, events: Sequence[TimelineEvent]) -> dict[int, list[Decision]]:
    """Return the approvals of the events, by run; runs without approvals are left out.

    A child run has the approvals of its parent run.
    """
    known = runs.list_runs(tx, [one.run for one in events if one.run])
    requests = {run.id: run.parent or run.id for run in known}
    decisions = runs.list_decisions_on(tx, [*requests.values()])
    approvals = {
        run: [one for one in decisions.get(request, ()) if one.approves]
        for run, request in requests.items()
    }
    return {run: approved for run, approved in approvals.items() if approved}


def _iterate_run_events(
    tx: Transaction, entries: Sequence[Entry], at: int, span: int, host_pattern: str
) -> Iterable[TimelineEvent]:
    entry_times: dict[int, list[int]] = {}
    for entry in entries:
        if entry.run is not None and entry.kind not in _KINDS_OUTSIDE_RUNS:
            entry_times.setdefault(entry.run, []).append(entry.at)
    found = _iterate_runs(tx, entry_times, at, span)
    # A plan that is not requested yet is no attempt, and concerns only its author.
    changes = [run for run in found if run.kind == "change" and not run.plan_only]
    for run, children in _fold_children(tx, changes, host_pattern):
        yield _build_run_event(run, children, entry_times, at, host_pattern)


def _fold_children(
    tx: Transaction, found: Sequence[Run], host_pattern: str
) -> Iterable[tuple[Run, Sequence[Run]]]:
    """Yield each run on these hosts once, and of a run on several hosts the children found.

    It stands for its children, unless only one of its hosts is asked for and has begun: then the
    run of that host says more. So does a child whose parent may not be viewed.
    """
    matching = {run.id: run for run in found if _list_matching_hosts(run, host_pattern)}
    missing = {run.parent for run in matching.values() if run.parent} - matching.keys()
    parents = {run.id: run for run in runs.list_runs(tx, sorted(missing))}
    parents |= {run.id: run for run in matching.values() if run.hosts}
    children: dict[int, list[Run]] = {}
    for run in matching.values():
        if run.parent in parents:
            children.setdefault(run.parent, []).append(run)
        elif not run.hosts:
            yield run, ()
    for number, parent in parents.items():
        own = children.get(number, ())
        is_of_one_host = len(_list_matching_hosts(parent, host_pattern)) == 1
        if is_of_one_host and len(own) == 1 and own[0].state not in _STATES_BEFORE_TURN:
            yield own[0], ()
        else:
            yield parent, own


def _iterate_runs(
    tx: Transaction, entry_times: Mapping[int, object], at: int, span: int
) -> Iterable[Run]:
    """Yield the runs that have entries then, and those that ran during the whole span."""
    spanning = search.list_runs_spanning(
        tx, at - span, at + span, _UNFINISHED_STATES, most=_BATCH_SIZE
    )
    numbers = sorted({*entry_times, *spanning})
    for first in range(0, len(numbers), _BATCH_SIZE):
        yield from runs.list_runs(tx, numbers[first : first + _BATCH_SIZE])


def _build_run_event(
    run: Run,
    children: Sequence[Run],
    entry_times: Mapping[int, Sequence[int]],
    at: int,
    host_pattern: str,
) -> TimelineEvent:
    """Return the event of a run. children: those of it that are on the hosts asked for."""
    known = [
        time
        for one in (run, *children)
        for time in (*entry_times.get(one.id, ()), one.started_at, one.ended_at)
        if time is not None
    ]
    nearest = min(known or [run.requested_at], key=lambda one: abs(one - at))
    matching = _list_matching_hosts(run, host_pattern)
    # Of a host whose run is not among them, only the whole is known.
    is_open = run.is_sequence or not {*matching} <= {one.host for one in children}
    done = _has_started(run) and (is_open or any(map(_has_started, children)))
    return TimelineEvent(
        nearest,
        0 if done else 1,
        len(matching),
        run.title,
        _put_first(matching, run),
        run.requested_by,
        run.id,
        run.status,
        has_started=run.state in ENDED_STATES or done,
        outcome=run.summary if run.is_ended else "",
    )


def _has_started(run: Run) -> bool:
    return run.started_at is not None or run.state in _UNFINISHED_STATES


def _list_matching_hosts(run: Run, host_pattern: str) -> Sequence[str]:
    return [host for host in run.target_hosts if _matches_any_pattern(host, host_pattern)]


def _put_first(matching: Sequence[str], run: Run) -> tuple[str, ...]:
    """Return the hosts of a run, first those that the reader looks for: lists show the first."""
    return tuple(dict.fromkeys([*matching, *run.target_hosts]))


def describe_event(
    event: TimelineEvent,
    decisions: Sequence[Decision] = (),
    person_names: Mapping[str, str] | None = None,
) -> str:
    """Return an event on one line: title, hosts unless the title names them, person, outcome.

    person_names: names by the IDs of people; a person without a name is shown by their ID.
    """
    hosts = ", ".join(event.hosts[:3]) + (
        f" and {len(event.hosts) - 3} more" * (len(event.hosts) > 3)
    )
    where = "" if len(event.hosts) == 1 and event.hosts[0] in event.what else f" on {hosts}"
    by = f", by {(person_names or {}).get(event.person, event.person)}" if event.person else ""
    approved = format_approvers(decisions, person_names)
    end = f": {event.outcome}" if event.outcome else ""
    return escape_to_one_line(f"{event.what}{where if event.hosts else ''}{by}{approved}{end}")


def _iterate_fire_events(
    tx: Transaction, entries: Sequence[Entry], host_pattern: str
) -> Iterable[TimelineEvent]:
    """Yield the due times that schedules missed or skipped, on one host or on all hosts."""
    fires = [entry for entry in entries if entry.kind in _FIRE_KINDS and entry.run is not None]
    numbers = sorted({entry.run or 0 for entry in fires})
    requests = {run.id: run for run in runs.list_runs(tx, numbers)}
    for entry in fires:
        run = requests.get(entry.run or 0)
        planned = (tuple(run.hosts) or (run.host,)) if run else ()
        hosts = (entry.host,) if entry.host else planned
        overlap = sum(_matches_any_pattern(one, host_pattern) for one in hosts)
        event = entry.event
        if overlap and isinstance(event, events.FiresMissed | events.FireSkipped):
            reason = event.reason if isinstance(event, events.FireSkipped) else ""
            title = ": ".join(filter(None, (run.title if run else "", reason)))
            what = f"schedule {event.schedule}, {entry.kind}: {title}"
            yield TimelineEvent(
                entry.at, 2, overlap, what, hosts, entry.person, entry.run, entry.kind, entry.seq
            )


def _iterate_check_events(
    tx: Transaction, entries: Sequence[Entry], host_pattern: str
) -> Iterable[TimelineEvent]:
    """Yield the checks whose result needs attention: of a check of several hosts its parent."""
    succeeded = [entry for entry in entries if entry.run and entry.kind == events.Succeeded.kind]
    listed = runs.list_runs(tx, sorted({entry.run or 0 for entry in succeeded}))
    checks = [run for run in listed if run.kind == "check" and run.status == NEEDS_ATTENTION]
    found = [run for run in checks if _list_matching_hosts(run, host_pattern)]
    parents = {run.id for run in found if run.hosts}
    for run in [run for run in found if run.parent not in parents][:_MAX_CHECKS]:
        matching = _list_matching_hosts(run, host_pattern)
        yield TimelineEvent(
            run.ended_at or run.requested_at,
            2,
            len(matching),
            run.title,
            _put_first(matching, run),
            run.requested_by,
            run.id,
            run.status,
            outcome=run.summary,
        )


def _iterate_drift_events(entries: Iterable[Entry], host_pattern: str) -> Iterable[TimelineEvent]:
    """Yield the values that were found changed outside Keyturn, missing or unreadable."""
    for entry in entries:
        found = entry.event if entry.kind == events.DriftFound.kind else None
        if not isinstance(found, events.DriftFound) or not _matches_any_pattern(
            entry.host, host_pattern
        ):
            continue
        was = f", set to {found.set_value} by run {entry.run}" if found.set_value else ""
        yield TimelineEvent(
            entry.at,
            2 if found.state == DriftState.UNREADABLE else 0,
            1,
            f"{found.key} {_DRIFT_TITLES.get(found.state, found.state)}",
            (entry.host,),
            entry.person,
            state=entry.kind,
            entry=entry.seq,
            outcome=f"{found.value}{was}",
        )


def _iterate_external_events(
    entries: Iterable[Entry], host_pattern: str
) -> Iterable[TimelineEvent]:
    """Yield the events of incoming webhooks. One without hosts may concern any host."""
    for entry in entries:
        event = entry.event if entry.kind == events.ExternalEvent.kind else None
        if not isinstance(event, events.ExternalEvent):
            continue
        hosts = event.hosts or ((entry.host,) if entry.host else ())
        overlap = sum(_matches_any_pattern(one, host_pattern) for one in hosts)
        what = event.title or "an event"
        if overlap or not hosts:
            yield TimelineEvent(
                entry.at if event.occurred_at is None else event.occurred_at,
                2 if hosts else 3,
                overlap,
                f"{event.source}: {what}" if event.source else what,
                hosts,
                entry.person,
                entry.run,
                entry.kind,
                entry.seq,
                outcome=event.detail,
            )


def _iterate_offline_events(
    entries: Iterable[Entry], host_pattern: str
) -> Iterable[TimelineEvent]:
    """Yield what enrolled hosts ran without Keyturn."""
    for entry in entries:
        if entry.kind not in _OFFLINE_KINDS or not _matches_any_pattern(entry.host, host_pattern):
            continue
        event, at = entry.event, entry.at
        if isinstance(event, events.ChangedOffline):
            what, at = f"{event.request}, offline", event.occurred_at
            outcome = f"signed by {', '.join(event.signers)}"
        elif isinstance(event, events.OfflineRecordInvalid):
            what, outcome = "an offline change whose record does not verify", event.reason
        else:
            continue
        yield TimelineEvent(
            at, 0, 1, what, (entry.host,), entry.person, None, entry.kind, entry.seq, outcome
        )


def _iterate_damaged_events(
    entries: Iterable[Entry], host_pattern: str
) -> Iterable[TimelineEvent]:
    """Yield the entries of these kinds that cannot be read: what they hold is not known."""
    for entry in entries:
        overlap = int(_matches_any_pattern(entry.host, host_pattern)) if entry.host else 0
        if entry.kind in _READ_KINDS and entry.is_damaged and (overlap or not entry.host):
            yield TimelineEvent(
                entry.at,
                2 if entry.host else 3,
                overlap,
                "an entry of the change log that cannot be read",
                (entry.host,) if entry.host else (),
                entry.person,
                None,
                entry.kind,
                entry.seq,
            )


def _build_global_event(entry: Entry) -> TimelineEvent:
    what = _GLOBAL_EVENT_TITLES[entry.kind]
    return TimelineEvent(entry.at, 3, 0, what, (), entry.person, entry.run, entry.kind, entry.seq)


def _matches_any_pattern(host: str, patterns: str) -> bool:
    return any(
        host_patterns.matches_pattern(host, one) for one in patterns.replace(",", " ").split()
    )
