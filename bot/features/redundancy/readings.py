"""What is known of the legs of services: hosts are contacted and checks run before a change.

Nothing here runs in the transaction of the gate: it decides by the readings that are stored
before, and by their age.
"""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from bot.db.database import Transaction
from bot.execution.planner import check_enabled
from bot.execution.questions import create_query_function
from bot.features.redundancy import rows, status
from bot.hosts.live_check import build_contact_query
from bot.model.plan import RemainingWork
from bot.model.request_form import find_runbook, parse_request, split_words
from bot.model.run import RefusedBy, Run, State
from bot.policy import NoPolicyError, Policy
from bot.policy.fault_tree import Event
from bot.policy.tree_condition import ConditionError, has_failed
from bot.workflow.context import WorkflowContext
from connectors.errors import HostError
from runbooks import Check, Leg, Refused, Report, read_report

log = logging.getLogger(__name__)

# How many hosts are read at a time, and for how long before a change goes on without an answer.
_MAX_PARALLEL = 16
_MAX_SECONDS = 15.0


@dataclass(frozen=True)
class _Source:
    """Where it is read whether events have happened: a check, or a login to a host."""

    host: str
    check: str = ""
    """The check as it is typed; "" where the host is only contacted."""


@dataclass(frozen=True)
class _Result:
    """What a source returned. report: of a check that ran. error: why there is no result."""

    report: Report | None = None
    error: str = ""


def prepare(
    context: WorkflowContext, policy: Policy, _run: Run, work: RemainingWork
) -> RemainingWork:
    """Read the services that a change touches, so that the guard decides by what is so now."""
    refresh_readings(context, policy, work.takes_down)
    return work


def record_check(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Store what a check that has just ended says of events of fault trees, if any names it."""
    is_unread = run.state is State.FAILED or run.refused_by is RefusedBy.RUNBOOK
    if run.kind != "check" or run.hosts or not (run.report or is_unread):
        return
    try:
        policy = context.policies.get_policy()
    except NoPolicyError as error:
        log.warning("run %d is no reading of a leg without a valid policy: %s", run.id, error)
        return
    if run.report is not None:
        record_report(tx, policy, run.request, run.report, run=run.id)
    else:
        record_failed_check(tx, policy, run.request, run.summary, run=run.id)


def refresh_readings(context: WorkflowContext, policy: Policy, legs: Iterable[Leg]) -> None:
    """Read all services that carry these legs, as far as this process reaches their hosts.

    Hosts are contacted each time. A check runs again if its last result is too old.
    """
    wanted = [*legs]
    touched = [one for one in policy.trees.values() if one.list_events_of(wanted)]
    if not touched:
        return
    events: list[Event] = []
    with context.database.reading() as tx:
        for analysis in touched:
            unknown = status.read_status(tx, policy, analysis).state.unknown
            events += [e for e in analysis.events if not e.check or e.name in unknown]
    read_events(context, policy, events)


def read_events(context: WorkflowContext, policy: Policy, events: Iterable[Event]) -> None:
    """Read these events in parallel and store what is found; others of their sources, too."""
    sources = [*dict.fromkeys(_list_sources(context, policy, events))]
    if not sources:
        return
    pool = ThreadPoolExecutor(min(_MAX_PARALLEL, len(sources)), thread_name_prefix="read-leg")
    reads = {pool.submit(_read_source, context, policy, source): source for source in sources}
    finished, late = wait(reads, timeout=_MAX_SECONDS)
    # A read that is late ends at its own deadline; its result comes too late to count.
    pool.shutdown(wait=False, cancel_futures=True)
    results = [(reads[read], read.result()) for read in finished]
    results += [(reads[read], _Result(error=f"no answer in {_MAX_SECONDS:g} s")) for read in late]
    for source, result in results:
        # One transaction each: two that store the same rows in another order would deadlock.
        with context.database.transaction() as tx:
            _record_result(tx, policy, source, result)


def _list_sources(
    context: WorkflowContext, policy: Policy, events: Iterable[Event]
) -> Iterator[_Source]:
    """Yield what can be read from here: hosts of other sites are read by their own workers."""
    for event in events:
        if event.check:
            kind, words = find_runbook(split_words(event.check))
            source = _Source(parse_request(kind, words).target, event.check)
        elif event.leg is not None:
            source = _Source(event.leg.host)
        else:
            continue
        if context.sites is None or policy.inventory[source.host].site in context.sites:
            yield source


def _read_source(context: WorkflowContext, policy: Policy, source: _Source) -> _Result:
    try:
        if not source.check:
            query = build_contact_query(policy.inventory[source.host])
            context.fleet.run_query(source.host, query)
            return _Result()
        kind, words = find_runbook(split_words(source.check))
        check_enabled(context, kind)
        check = parse_request(kind, words)
        if not isinstance(check, Check):
            return _Result(error=f"{kind.words} is not a check")
        return _Result(read_report(check, create_query_function(context), check.report))
    except (HostError, Refused) as error:
        log.warning("%s could not be read: %s", source.check or source.host, error)
        return _Result(error=str(error))


def _record_result(tx: Transaction, policy: Policy, source: _Source, result: _Result) -> None:
    if source.check and result.report is not None:
        record_report(tx, policy, source.check, result.report, run=None)
        return
    if source.check:
        record_failed_check(tx, policy, source.check, result.error, run=None)
        return
    state = status.UNKNOWN if result.error else status.STANDS
    for tree, event in policy.events_by_contact.get(source.host, ()):
        rows.store_reading(tx, tree, event.name, state=state, run=None, detail=result.error)


def record_report(
    tx: Transaction, policy: Policy, request: str, report: Report, *, run: int | None
) -> None:
    """Store what a check says of the events that name it. request: the check as it is typed."""
    for tree, event in policy.events_by_check.get(request, ()):
        try:
            has_happened = has_failed(report, event.when)
        except ConditionError as error:
            state, detail = status.UNKNOWN, f"`{event.when}`: {error}"
        else:
            # What a finding means is for people to say: it is no proof that the leg is down.
            happened = status.FAILED if event.when else status.FINDING
            state = happened if has_happened else status.STANDS
            detail = f"{report.summary} ({event.when})" if event.when else report.summary
        rows.store_reading(tx, tree, event.name, state=state, run=run, detail=detail)


def record_failed_check(
    tx: Transaction, policy: Policy, request: str, error: str, *, run: int | None
) -> None:
    """Store that a check could not be made, so that its events are unknown."""
    for tree, event in policy.events_by_check.get(request, ()):
        rows.store_reading(tx, tree, event.name, state=status.UNKNOWN, run=run, detail=error)
