"""Fire schedules: request a run for each due time, exactly once.

Each due time of a schedule gets a row with its outcome: the run, or why there is none. The key of
the row decides which process fires, and the database's clock decides what is due. APScheduler only
wakes a process: its jobs are kept in memory.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from bot.audit import change_log, events
from bot.audit.event_type import Event
from bot.db import runs
from bot.db.database import Transaction
from bot.execution.scheduler import INTERVAL_SECONDS, JOB_OPTIONS, run_duty
from bot.features.schedules import approval, rows
from bot.features.schedules.actions import SCHEDULE_STATE_EVENTS
from bot.features.schedules.rows import Fire, Schedule
from bot.model.run import STATES_BEFORE_INTENT, RefusedBy, RequestOrigin, Run, State
from bot.model.schedule import FireOutcome, Overlap, ScheduleState
from bot.model.times import MINUTE
from bot.policy import Policy
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from bot.workflow.requests import record_request

# A due time that is handled later than this counts as missed.
_MAX_DELAY = 2 * MINUTE
_MAX_FIRES = 1_000
_CATCH_UP = "made up for"


class ScheduleTimer:
    """Fires the schedules every few seconds, and at each due time."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context
        self._scheduler = AsyncIOScheduler(timezone=UTC)

    async def run_until_cancelled(self) -> None:
        now = datetime.now(UTC)
        often: Mapping[str, Any] = {"seconds": INTERVAL_SECONDS, **JOB_OPTIONS}
        self._scheduler.add_job(self._fire, "interval", next_run_time=now, **often)
        self._scheduler.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._scheduler.shutdown(wait=False)

    async def _fire(self) -> None:
        await run_duty(lambda: fire_due_schedules(self._context))
        await run_duty(self._wake_at_next_due_time)

    def _wake_at_next_due_time(self) -> None:
        with self._context.database.reading() as tx:
            due_at, now = rows.get_next_due_time(tx), tx.now
        if due_at is not None:
            at = datetime.now(UTC) + timedelta(microseconds=due_at - now)
            once: Mapping[str, Any] = {"id": "next", "replace_existing": True, **JOB_OPTIONS}
            self._scheduler.add_job(self._fire, "date", run_date=at, **once)


def fire_due_schedules(context: WorkflowContext) -> None:
    """Record every due time that has come, and request the runs that start now."""
    with context.database.reading() as tx:
        due = rows.list_due_schedules(tx)
    for number in due:
        # One transaction each, so that an error in one schedule does not delay the others.
        with context.database.transaction() as tx:
            _record_due_fires(tx, rows.lock_schedule(tx, number))
    with context.database.reading() as tx:
        waiting = rows.list_later_fires(tx)
    for fire in waiting:
        policy = context.policies.get_policy()
        with context.database.transaction() as tx:
            schedule = rows.lock_schedule(tx, fire.schedule)
            if rows.is_still_waiting(tx, fire):
                _start_fire(context, tx, policy, schedule, fire)


def _record_due_fires(tx: Transaction, schedule: Schedule) -> None:
    """Record a row for every due time up to now."""
    due_times: list[int] = []
    for due_time in islice(
        schedule.timing.cron_expression.iterate_due_times(schedule.decided_until), _MAX_FIRES
    ):
        if due_time > tx.now:
            break
        due_times.append(due_time)
    if schedule.state is not ScheduleState.ACTIVE or not due_times:
        return
    punctual = [due_time for due_time in due_times[-1:] if tx.now - due_time <= _MAX_DELAY]
    late = due_times[: len(due_times) - len(punctual)]
    wanted = schedule.timing.catch_up - (1 if punctual and schedule.timing.catch_up == 1 else 0)
    made_up = late[len(late) - min(wanted, len(late)) :]
    missed = late[: len(late) - len(made_up)]
    for due_time in missed:
        why = "Keyturn was not running then"
        rows.record_fire(tx, _build_fire(schedule, due_time, "", FireOutcome.MISSED, tx.now, why))
    if missed:
        _log_schedule(
            tx,
            events.FiresMissed(
                schedule=schedule.id, count=len(missed), first=missed[0], last=missed[-1]
            ),
            schedule,
        )
    for due_time in made_up:
        _record_fires(tx, schedule, due_time, starts_at=tx.now, reason=_CATCH_UP)
    for due_time in punctual:
        _record_fires(tx, schedule, due_time, starts_at=due_time, reason="")
    rows.mark_decided(tx, schedule, due_times[-1])


def _record_fires(
    tx: Transaction, schedule: Schedule, due_at: int, *, starts_at: int, reason: str
) -> None:
    """Record a fire that starts now, or one for each host at its own time."""
    spread = schedule.timing.spread_minutes * MINUTE
    hosts = runs.get_run(tx, schedule.run).hosts if spread else ()
    for host in hosts or ("",):
        begin = starts_at + (_hash_fire(schedule.id, due_at, host) % spread if spread else 0)
        rows.record_fire(
            tx, _build_fire(schedule, due_at, host, FireOutcome.LATER, tx.now, reason, begin)
        )


def _hash_fire(schedule: int, due_at: int, host: str) -> int:
    """Return a pseudo-random number that is the same in every process."""
    digest = hashlib.sha256(f"{schedule}/{due_at}/{host}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def _start_fire(
    context: WorkflowContext, tx: Transaction, policy: Policy, schedule: Schedule, fire: Fire
) -> None:
    """Request the run, or record why not. A fire that has to wait is checked again later."""
    if schedule.state is not ScheduleState.ACTIVE:
        _skip_fire(tx, schedule, fire, f"the schedule is {schedule.state}")
        return
    founding = runs.get_run(tx, schedule.run)
    last = _find_unfinished_run(tx, schedule, fire.host)
    overlap = Overlap.QUEUE if fire.reason == _CATCH_UP else schedule.timing.overlap
    if last is not None and overlap is Overlap.CANCEL and last.state in STATES_BEFORE_INTENT:
        why = f"Schedule {schedule.id} fires again"
        end_run(context, tx, last, State.WITHDRAWN, why)
    elif last is not None and overlap is Overlap.SKIP:
        _skip_fire(tx, schedule, fire, f"run {last.id} had not ended")
        return
    elif last is not None:
        return
    frozen = policy.describe_freeze(founding.target_hosts, runbook=founding.runbook, now=tx.now)
    if frozen and founding.kind == "change":
        _skip_fire(tx, schedule, fire, frozen)
        return
    _request_run(context, tx, policy, schedule, fire)


def _request_run(
    context: WorkflowContext, tx: Transaction, policy: Policy, schedule: Schedule, fire: Fire
) -> None:
    founding = runs.get_run(tx, schedule.run)
    approved = approval.get_request_for_host(tx, founding, fire.host)
    new = _build_request(schedule, founding, approved)
    missing = [
        host for host in approved.hosts or (approved.host,) if host not in policy.inventory.hosts
    ]
    if missing:
        why = f"not in the inventory any more: {', '.join(missing)}"
        _suspend_schedule(tx, schedule, fire, why, run=None)
        return
    child_requests = runs.list_children(tx, founding.id) if approved.hosts else []
    children = [_build_request(schedule, founding, child) for child in child_requests]
    run = record_request(context, tx, policy, new, children)
    rows.mark_started(tx, fire, FireOutcome.FIRED, run=run.id, why=fire.reason)
    fired = events.Fired(schedule=schedule.id, due_at=fire.due_at, fired_run=run.id)
    _log_schedule(tx, fired, schedule, host=fire.host)
    if run.state is State.REFUSED:
        _suspend_schedule(tx, schedule, fire, run.summary, run=run.id)
        return
    try:
        approval.check_schedule_approval(context, tx, schedule, founding)
    except approval.ScheduleNotApproved as error:
        end_run(context, tx, run, State.REFUSED, str(error), refused_by=RefusedBy.SCHEDULE)
        _suspend_schedule(tx, schedule, fire, str(error), run=run.id, state=ScheduleState.LAPSED)


def _build_request(schedule: Schedule, founding_run: Run, approved_run: Run) -> runs.NewRun:
    """Return the request for *approved_run*, with the values that were approved."""
    is_child = approved_run.id != founding_run.id
    return runs.NewRun(
        runbook=approved_run.runbook,
        kind=approved_run.kind,
        values={**founding_run.values, "host": approved_run.host}
        if is_child
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
    number = rows.get_last_run(tx, schedule.id, host=host)
    last = None if number is None else runs.get_run(tx, number)
    return None if last is None or last.is_ended else last


def _skip_fire(tx: Transaction, schedule: Schedule, fire: Fire, reason: str) -> None:
    rows.mark_started(tx, fire, FireOutcome.SKIPPED, run=None, why=reason)
    skipped = events.FireSkipped(schedule=schedule.id, due_at=fire.due_at, reason=reason)
    _log_schedule(tx, skipped, schedule, host=fire.host)


def _suspend_schedule(
    tx: Transaction,
    schedule: Schedule,
    fire: Fire,
    reason: str,
    *,
    run: int | None,
    state: ScheduleState = ScheduleState.SUSPENDED,
) -> None:
    """Suspend the schedule: its owner may not request this now, or its approval is not valid."""
    event_type = SCHEDULE_STATE_EVENTS[state]
    rows.mark_started(tx, fire, FireOutcome.REFUSED, run=run, why=reason)
    rows.set_schedule_state(tx, schedule, state, reason)
    _log_schedule(tx, event_type(schedule=schedule.id, reason=reason), schedule)


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


def _log_schedule(tx: Transaction, event: Event, schedule: Schedule, *, host: str = "") -> None:
    change_log.append_entry(tx, event, run=schedule.run, person=schedule.owner, host=host)
