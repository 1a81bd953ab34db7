"""Legs that runs have taken down: checked again, and given back once their checks are well."""

import logging
from collections.abc import Iterable, Iterator

from bot.audit import change_log
from bot.db import redundancy as rows
from bot.db import runs
from bot.db.database import Transaction
from bot.db.redundancy import LegClaim
from bot.execution.planner import check_enabled
from bot.execution.questions import create_query_function
from bot.model.request_form import find_runbook, parse_request, split_words
from bot.model.run import ENDED_STATES, Run
from bot.model.times import SECOND
from bot.policy import NoPolicyError, Policy
from bot.queries import redundancy
from bot.redundancy import condition
from bot.redundancy.fault_tree import Event
from bot.workflow.context import WorkflowContext, get_site
from connectors.errors import HostError
from runbooks import Check, Leg, Refused, Report, read_report

log = logging.getLogger(__name__)

# A service that came back may fail again at once, so its leg is kept so much longer.
_SETTLE = 10 * SECOND
_CHECK_INTERVAL = 10 * SECOND


def refresh_readings(context: WorkflowContext, policy: Policy, legs: Iterable[Leg]) -> None:
    """Check again what is too old of the services that carry these legs, as far as we reach it."""
    wanted = [*legs]
    for analysis in policy.trees.values():
        if not analysis.list_events_of(wanted):
            continue
        with context.database.reading() as tx:
            unknown = redundancy.read_status(tx, policy, analysis).state.unknown
        for event in analysis.events:
            if event.name in unknown and event.check:
                run_event_check(context, policy, event)


def run_event_check(context: WorkflowContext, policy: Policy, event: Event) -> None:
    """Run the check of an event and store what it returns; nothing if another site reaches it."""
    runbook_class, words = find_runbook(split_words(event.check))
    runbook = parse_request(runbook_class, words)
    site = policy.inventory[runbook.target].site
    if not isinstance(runbook, Check) or (context.sites is not None and site not in context.sites):
        return
    try:
        check_enabled(context, runbook_class)
        report = read_report(runbook, create_query_function(context), runbook.report)
    except (HostError, Refused) as error:
        log.warning("the check %s failed: %s", event.check, error)
        with context.database.transaction() as tx:
            record_failed_check(tx, policy, event.check, str(error), run=None)
        return
    with context.database.transaction() as tx:
        record_report(tx, policy, event.check, report, run=None)


def release_due_claims(context: WorkflowContext) -> None:
    """Give back the legs of runs that are over, once the event's own check is well again."""
    with context.database.reading() as tx:
        over = [*_list_claims_of_ended_runs(tx)]
    if not over:
        return
    try:
        policy = context.policies.get_policy()
    except NoPolicyError as error:
        log.warning("legs stay claimed while there is no valid policy: %s", error)
        return
    for claim, run in over:
        event = _find_event(policy, claim)
        if event is not None and event.check and not _is_checked_lately(context, claim):
            run_event_check(context, policy, event)
        with context.database.transaction() as tx:
            if _is_releasable(tx, claim, run, event):
                release_claim(context, tx, claim, run, reason="its check is well again")


def release_by_hand(
    context: WorkflowContext, tree: str, event: str, *, person: str, reason: str
) -> int:
    """Give the claims on an event back, whatever its check says; return how many there were."""
    with context.database.transaction() as tx:
        claims = [claim for claim in rows.list_claims(tx, tree) if claim.event == event]
        for claim in claims:
            run = runs.get_run(tx, claim.run)
            release_claim(context, tx, claim, run, reason=reason, person=person)
    return len(claims)


def release_claim(
    context: WorkflowContext,
    tx: Transaction,
    claim: LegClaim,
    run: Run,
    *,
    reason: str,
    person: str = "",
) -> None:
    """Give a leg back, and go on with the request that may wait for it."""
    if not rows.delete_claim(tx, claim):
        return
    change_log.append_entry(
        tx,
        "leg released",
        run=run,
        person=person,
        legs=[f"{claim.tree}: {claim.event}"],
        reason=reason,
    )
    if run.parent is not None:
        context.dispatcher.enqueue_run(tx, run.parent, get_site(context, run.host))


def _list_claims_of_ended_runs(tx: Transaction) -> Iterator[tuple[LegClaim, Run]]:
    for claim in rows.list_claims(tx):
        run = runs.get_run(tx, claim.run)
        # A run with an unknown outcome may still work on the leg.
        if run.state in ENDED_STATES:
            yield claim, run


def _find_event(policy: Policy, claim: LegClaim) -> Event | None:
    analysis = policy.trees.get(claim.tree)
    return analysis.tree.events.get(claim.event) if analysis else None


def _is_checked_lately(context: WorkflowContext, claim: LegClaim) -> bool:
    with context.database.reading() as tx:
        reading = rows.list_readings(tx, claim.tree).get(claim.event)
        return reading is not None and tx.now - reading.read_at < _CHECK_INTERVAL


def _is_releasable(tx: Transaction, claim: LegClaim, run: Run, event: Event | None) -> bool:
    """Return whether the run's work is over and the leg has stood for long enough since."""
    ended = run.ended_at or tx.now
    if event is None or not event.check:
        return tx.now - ended >= _SETTLE
    reading = rows.list_readings(tx, claim.tree).get(claim.event)
    if reading is None or reading.state != redundancy.STANDS or reading.read_at <= ended:
        return False
    return tx.now - max(ended, reading.since_at) >= _SETTLE


def take_claims(tx: Transaction, policy: Policy, run: Run) -> str:
    """Claim the events that a run may bring about, or return why it may not.

    Called in the gate's transaction, after all other checks: two runs that would take the last
    two legs are decided one after the other.
    """
    legs = redundancy.list_legs(run.plan)
    touched = {name: one.list_events_of(legs) for name, one in policy.trees.items()}
    touched = {name: events for name, events in touched.items() if events}
    if not touched:
        return ""
    rows.lock_trees(tx, [*touched])
    # The approved plan says what was overridden, not the row.
    override = run.plan.guard_override if run.plan else ""
    refusal = redundancy.find_refusal(tx, policy, legs, run=run.id, override=override)
    if refusal:
        return refusal
    for name, events in touched.items():
        for event in events:
            rows.add_claim(tx, name, event, run.id)
    claims: list[str] = [f"{name}: {', '.join(events)}" for name, events in touched.items()]
    change_log.append_entry(tx, "legs claimed", run=run, legs=claims)
    return ""


def record_report(
    tx: Transaction, policy: Policy, request: str, report: Report, *, run: int | None
) -> None:
    """Store what a check says of the events that name it. request: the check as it is typed."""
    for tree, event in policy.events_by_check.get(request, ()):
        has_failed = condition.has_failed(report, event.when)
        state = (
            redundancy.UNKNOWN
            if has_failed is None
            else redundancy.FAILED
            if has_failed
            else redundancy.STANDS
        )
        rows.store_reading(
            tx, tree, event.name, state=state, run=run, detail=_describe_report(report, event)
        )


def record_failed_check(
    tx: Transaction, policy: Policy, request: str, error: str, *, run: int | None
) -> None:
    """Store that a check could not be made, so that its events are unknown."""
    for tree, event in policy.events_by_check.get(request, ()):
        rows.store_reading(tx, tree, event.name, state=redundancy.UNKNOWN, run=run, detail=error)


def _describe_report(report: Report, event: Event) -> str:
    return f"{report.summary} ({event.when})" if event.when else report.summary
