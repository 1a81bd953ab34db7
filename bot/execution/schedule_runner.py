"""Firing: what is due by the clock becomes a run, once, whoever looks first.

Every moment that a schedule is due at gets a row that says what became of it: a run was asked for,
or why none was. The row's key settles who fires; the database's clock says what is due.
"""

import hashlib
from itertools import islice

from bot.audit import change_log
from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Fire, FireOutcome, Schedule, ScheduleState
from bot.model.canonical import Canonical
from bot.model.run import STATES_BEFORE_INTENT, RequestOrigin, Run, State
from bot.model.schedule import Overlap
from bot.policy import Policy
from bot.workflow import schedule_approval
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from bot.workflow.requests import record_request

_SECOND = 1_000_000
# A fire that is later than this was missed: nobody was there.
_MAX_DELAY = 120 * _SECOND
_MAX_FIRES = 1_000
_CATCH_UP = "made up for"


def fire_due_schedules(context: WorkflowContext) -> None:
    """Decide every moment that has come, and ask for what is to start now."""
    with context.database.reading() as tx:
        due = schedules.list_due_schedules(tx)
    for number in due:
        # One transaction each: what is wrong with one schedule holds no other up.
        with context.database.transaction() as tx:
            _record_due_fires(tx, schedules.lock_schedule(tx, number))
    with context.database.reading() as tx:
        waiting = schedules.list_later_fires(tx)
    for fire in waiting:
        policy = context.policies.get_policy()
        with context.database.transaction() as tx:
            schedule = schedules.lock_schedule(tx, fire.schedule)
            if schedules.is_still_waiting(tx, fire):
                _start_fire(context, tx, policy, schedule, fire)


def _record_due_fires(tx: Transaction, schedule: Schedule) -> None:
    """Give every moment up to now its row."""
    moments: list[int] = []
    for moment in islice(
        schedule.timing.cron_expression.iterate_due_times(schedule.decided_until), _MAX_FIRES
    ):
        if moment > tx.now:
            break
        moments.append(moment)
    if schedule.state is not ScheduleState.ACTIVE or not moments:
        return
    punctual = [moment for moment in moments[-1:] if tx.now - moment <= _MAX_DELAY]
    late = moments[: len(moments) - len(punctual)]
    wanted = schedule.timing.catch_up - (1 if punctual and schedule.timing.catch_up == 1 else 0)
    made_up = late[len(late) - min(wanted, len(late)) :]
    missed = late[: len(late) - len(made_up)]
    for moment in missed:
        why = "Keyturn was not running then"
        schedules.record_fire(
            tx, _build_fire(schedule, moment, "", FireOutcome.MISSED, tx.now, why)
        )
    if missed:
        _log_schedule(
            tx, "fires missed", schedule, count=len(missed), first=missed[0], last=missed[-1]
        )
    for moment in made_up:
        _record_fires(tx, schedule, moment, starts_at=tx.now, reason=_CATCH_UP)
    for moment in punctual:
        _record_fires(tx, schedule, moment, starts_at=moment, reason="")
    schedules.mark_decided(tx, schedule, moments[-1])


def _record_fires(
    tx: Transaction, schedule: Schedule, due_at: int, *, starts_at: int, reason: str
) -> None:
    """Let a fire start now, or each host at its own moment."""
    spread = schedule.timing.spread_minutes * 60 * _SECOND
    hosts = runs.get_run(tx, schedule.run).hosts if spread else ()
    for host in hosts or ("",):
        begin = starts_at + (_hash_fire(schedule.id, due_at, host) % spread if spread else 0)
        schedules.record_fire(
            tx, _build_fire(schedule, due_at, host, FireOutcome.LATER, tx.now, reason, begin)
        )


def _hash_fire(schedule: int, due_at: int, host: str) -> int:
    """Return a number that looks like chance and is the same wherever it is thrown."""
    thrown = hashlib.sha256(f"{schedule}/{due_at}/{host}".encode()).digest()
    return int.from_bytes(thrown[:8], "big")


def _start_fire(
    context: WorkflowContext, tx: Transaction, policy: Policy, schedule: Schedule, fire: Fire
) -> None:
    """Ask for the run, or write down why not. What it waits for is looked at again later."""
    if schedule.state is not ScheduleState.ACTIVE:
        _skip_fire(tx, schedule, fire, f"the schedule is {schedule.state}")
        return
    founded = runs.get_run(tx, schedule.run)
    last = _find_unfinished_run(tx, schedule, fire.host)
    overlap = Overlap.QUEUE if fire.reason == _CATCH_UP else schedule.timing.overlap
    if last is not None and overlap is Overlap.CANCEL and last.state in STATES_BEFORE_INTENT:
        why = f"Schedule {schedule.id} fires again"
        end_run(context, tx, last, State.WITHDRAWN, why)
    elif last is not None and overlap is Overlap.SKIP:
        _skip_fire(tx, schedule, fire, f"run {last.id} was not over")
        return
    elif last is not None:
        return
    frozen = policy.describe_freeze(host=founded.host, runbook=founded.runbook, now=tx.now)
    if frozen and founded.kind == "change":
        _skip_fire(tx, schedule, fire, frozen)
        return
    _request_run(context, tx, policy, schedule, fire)


def _request_run(
    context: WorkflowContext, tx: Transaction, policy: Policy, schedule: Schedule, fire: Fire
) -> None:
    founded = runs.get_run(tx, schedule.run)
    meant = schedule_approval.get_request_for_host(tx, founded, fire.host)
    new = _build_request(schedule, founded, meant)
    gone = [host for host in meant.hosts or (meant.host,) if host not in policy.inventory.hosts]
    if gone:
        why = f"not in the inventory any more: {', '.join(gone)}"
        _suspend_schedule(tx, schedule, fire, why, run=None)
        return
    parts_of_it = runs.list_children(tx, founded.id) if meant.hosts else []
    children = [_build_request(schedule, founded, part) for part in parts_of_it]
    run = record_request(context, tx, policy, new, children)
    schedules.mark_started(tx, fire, FireOutcome.FIRED, run=run.id, why=fire.reason)
    _log_schedule(tx, "fired", schedule, due_at=fire.due_at, fired_run=run.id, host=fire.host)
    if run.state is State.REFUSED:
        _suspend_schedule(tx, schedule, fire, run.summary, run=run.id)
        return
    try:
        schedule_approval.check_schedule_approval(context, tx, schedule, founded)
    except schedule_approval.ScheduleNotApproved as shut:
        end_run(context, tx, run, State.REFUSED, str(shut))
        _suspend_schedule(tx, schedule, fire, str(shut), run=run.id, state=ScheduleState.LAPSED)


def _build_request(schedule: Schedule, founding_run: Run, approved_run: Run) -> runs.NewRun:
    """Return the request for *meant*, with the values that were approved."""
    alone = approved_run.id != founding_run.id
    return runs.NewRun(
        runbook=approved_run.runbook,
        kind=approved_run.kind,
        values={**founding_run.values, "host": approved_run.host}
        if alone
        else founding_run.values,
        request=approved_run.request,
        host=approved_run.host,
        area=approved_run.area,
        requested_by=schedule.owner,
        origin=RequestOrigin("schedule", channel=schedule.timing.channel, schedule_id=schedule.id),
        reason=f"schedule {schedule.id} “{schedule.timing.name}”",
        hosts=approved_run.hosts,
    )


def _find_unfinished_run(tx: Transaction, schedule: Schedule, host: str) -> Run | None:
    number = schedules.get_last_run(tx, schedule.id, host=host)
    last = None if number is None else runs.get_run(tx, number)
    return None if last is None or last.is_ended else last


def _skip_fire(tx: Transaction, schedule: Schedule, fire: Fire, reason: str) -> None:
    schedules.mark_started(tx, fire, FireOutcome.SKIPPED, run=None, why=reason)
    _log_schedule(tx, "fire skipped", schedule, due_at=fire.due_at, reason=reason, host=fire.host)


def _suspend_schedule(
    tx: Transaction,
    schedule: Schedule,
    fire: Fire,
    reason: str,
    *,
    run: int | None,
    state: ScheduleState = ScheduleState.SUSPENDED,
) -> None:
    """Fire no more: its owner may not have this done now, or it is not what was approved."""
    schedules.mark_started(tx, fire, FireOutcome.REFUSED, run=run, why=reason)
    schedules.set_schedule_state(tx, schedule, state, reason)
    _log_schedule(tx, f"schedule {state}", schedule, reason=reason)


def _build_fire(
    schedule: Schedule,
    due_at: int,
    host: str,
    outcome: FireOutcome,
    now: int,
    reason: str,
    starts_at: int | None = None,
) -> Fire:
    return Fire(
        schedule=schedule.id,
        due_at=due_at,
        host=host,
        outcome=outcome,
        starts_at=due_at if starts_at is None else starts_at,
        recorded_at=now,
        run=None,
        reason=reason,
    )


def _log_schedule(
    tx: Transaction, kind: str, schedule: Schedule, *, host: str = "", **facts: Canonical
) -> None:
    change_log.append_entry(
        tx, kind, run=schedule.run, person=schedule.owner, host=host, schedule=schedule.id, **facts
    )
