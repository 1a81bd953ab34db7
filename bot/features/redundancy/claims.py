"""Legs that runs have taken down: read again, and given back once they stand."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Event as Closing

from bot.audit import change_log, events
from bot.audit.refusals import log_person_refusal
from bot.db import runs
from bot.db.database import Transaction
from bot.features.redundancy import readings, rows, status
from bot.features.redundancy.rows import LegClaim
from bot.model.errors import NoSuchPersonError, NotAllowed
from bot.model.run import ENDED_STATES, Run
from bot.model.times import SECOND
from bot.policy import NoPolicyError, Policy
from bot.policy.fault_tree import Event
from bot.workflow.context import WorkflowContext, get_site
from bot.workflow.stopping import check_stop_reason

log = logging.getLogger(__name__)

# A service that came back may fail again at once, so its leg is kept so much longer.
_SETTLE = 10 * SECOND
_CHECK_INTERVAL = 10 * SECOND


def build_duties(context: WorkflowContext, _closing: Closing) -> Sequence[Callable[[], None]]:
    """Return the duty that gives legs back."""
    return [partial(release_due_claims, context)]


def release_due_claims(context: WorkflowContext) -> None:
    """Give back the legs of runs that are over, once its event's own reading is well again."""
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
        if event is None and policy.tree_problems:
            continue  # its tree may be one of those that cannot be read now
        if event is not None and not _is_read_lately(context, claim):
            readings.read_events(context, policy, [event])
        with context.database.transaction() as tx:
            if _is_releasable(tx, claim, run, event):
                release_claim(context, tx, claim, run, reason="it stands again")


class LegActions:
    """What people may do about the legs that runs have taken."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def release_leg(self, tree: str, event: str, *, person: str, reason: str) -> int:
        """Give the claims on an event back, whatever is known of it; return how many there were.

        Raises NotAllowed for all but owners of the leg's area, NoSuchPersonError and
        InvalidRequestError.
        """
        policy, reason = self._context.policies.get_policy(), check_stop_reason(reason)
        if policy.find_person(person) is None:
            raise NoSuchPersonError(person)
        refusal = ""
        with self._context.database.transaction() as tx:
            claims = [claim for claim in rows.list_claims(tx, tree) if claim.event == event]
            for claim in claims:
                run = runs.get_run(tx, claim.run)
                refusal = _get_release_refusal(policy, claim, run, person)
                if refusal:
                    log_person_refusal(tx, events.LegReleaseRefused(), person=person, run=run)
                    break
                release_claim(self._context, tx, claim, run, reason=reason, person=person)
        if refusal:
            raise NotAllowed(refusal)
        return len(claims)


def _get_release_refusal(policy: Policy, claim: LegClaim, run: Run, person: str) -> str:
    """Return why a person may not give a claim back; "" if they may."""
    event = _find_event(policy, claim)
    host = event.leg.host if event is not None and event.leg is not None else run.host
    known = policy.inventory.hosts.get(host)
    areas = [known.area] if known is not None else [*run.areas]
    owners = {
        owner
        for name in areas
        if name in policy.organisation.areas
        for owner in policy.organisation.areas[name].owners
    }
    if person in owners:
        return ""
    return f"only an owner of {policy.join_area_titles(areas)} can release {claim.event}"


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
        events.LegReleased(legs=(f"{claim.tree}: {claim.event}",), reason=reason),
        run=run,
        person=person,
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


def _is_read_lately(context: WorkflowContext, claim: LegClaim) -> bool:
    with context.database.reading() as tx:
        reading = rows.list_readings(tx, claim.tree).get(claim.event)
        return reading is not None and tx.now - reading.read_at < _CHECK_INTERVAL


def _is_releasable(tx: Transaction, claim: LegClaim, run: Run, event: Event | None) -> bool:
    """Return whether the run's work is over and the leg has stood for long enough since."""
    ended = run.ended_at or tx.now
    if event is None:
        return tx.now - ended >= _SETTLE
    reading = rows.list_readings(tx, claim.tree).get(claim.event)
    if reading is None or reading.state != status.STANDS or reading.read_at <= ended:
        return False
    return tx.now - max(ended, reading.since_at) >= _SETTLE


def take_claims(tx: Transaction, policy: Policy, run: Run) -> str:
    """Claim the events that a run may bring about, or return why it may not.

    Called in the gate's transaction, after all other checks: two runs that would take the last
    two legs are decided one after the other.
    """
    legs = run.plan.legs if run.plan else ()
    if not legs:
        return ""
    touched = {name: one.list_events_of(legs) for name, one in policy.trees.items()}
    touched = {name: found for name, found in touched.items() if found}
    rows.lock_trees(tx, [*touched])
    # The approved plan says what was overridden, not the row.
    override = run.plan.guard_override if run.plan else ""
    refusal = status.find_refusal(tx, policy, legs, run=run.id, override=override)
    if refusal:
        return refusal
    if not touched:
        return ""
    for name, leg_events in touched.items():
        for event in leg_events:
            rows.add_claim(tx, name, event, run.id)
    claims = tuple(f"{name}: {', '.join(found)}" for name, found in touched.items())
    change_log.append_entry(tx, events.LegsClaimed(legs=claims), run=run)
    return ""
