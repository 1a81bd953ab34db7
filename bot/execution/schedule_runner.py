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
from bot.model.run import BEFORE_INTENT, Origin, Run, State
from bot.model.schedule import Overlap
from bot.policy import Policy
from bot.workflow import schedule_approval
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from bot.workflow.requests import record_request

_SECOND = 1_000_000
# A fire that is later than this was missed: nobody was there.
_GRACE = 120 * _SECOND
_MOST_AT_ONCE = 1_000
_MADE_UP = "made up for"


def fire_due_schedules(parts: WorkflowContext) -> None:
    """Decide every moment that has come, and ask for what is to start now."""
    with parts.database.reading() as tx:
        due = schedules.list_due_schedules(tx)
    for number in due:
        # One transaction each: what is wrong with one schedule holds no other up.
        with parts.database.transaction() as tx:
            _decide(tx, schedules.lock_schedule(tx, number))
    with parts.database.reading() as tx:
        waiting = schedules.list_later_fires(tx)
    for fire in waiting:
        policy = parts.policies.current()
        with parts.database.transaction() as tx:
            schedule = schedules.lock_schedule(tx, fire.schedule)
            if schedules.is_still_waiting(tx, fire):
                _start(parts, tx, policy, schedule, fire)


def _decide(tx: Transaction, schedule: Schedule) -> None:
    """Give every moment up to now its row."""
    moments: list[int] = []
    for moment in islice(schedule.timing.timetable.after(schedule.decided), _MOST_AT_ONCE):
        if moment > tx.now:
            break
        moments.append(moment)
    if schedule.standing is not ScheduleState.ACTIVE or not moments:
        return
    punctual = [moment for moment in moments[-1:] if tx.now - moment <= _GRACE]
    late = moments[: len(moments) - len(punctual)]
    wanted = schedule.timing.catch_up - (1 if punctual and schedule.timing.catch_up == 1 else 0)
    made_up = late[len(late) - min(wanted, len(late)) :]
    missed = late[: len(late) - len(made_up)]
    for moment in missed:
        why = "Keyturn was not running then"
        schedules.record_fire(tx, _fire(schedule, moment, "", FireOutcome.MISSED, tx.now, why))
    if missed:
        _log(tx, "fires missed", schedule, n=len(missed), first=missed[0], last=missed[-1])
    for moment in made_up:
        _plan(tx, schedule, moment, start=tx.now, why=_MADE_UP)
    for moment in punctual:
        _plan(tx, schedule, moment, start=moment, why="")
    schedules.mark_decided(tx, schedule, moments[-1])


def _plan(tx: Transaction, schedule: Schedule, moment: int, *, start: int, why: str) -> None:
    """Let a fire start now, or each host at its own moment."""
    spread = schedule.timing.spread * 60 * _SECOND
    hosts = runs.get_run(tx, schedule.run).hosts if spread else ()
    for host in hosts or ("",):
        begin = start + (_dice(schedule.id, moment, host) % spread if spread else 0)
        schedules.record_fire(
            tx, _fire(schedule, moment, host, FireOutcome.LATER, tx.now, why, begin)
        )


def _dice(schedule: int, moment: int, host: str) -> int:
    """Return a number that looks like chance and is the same wherever it is thrown."""
    thrown = hashlib.sha256(f"{schedule}/{moment}/{host}".encode()).digest()
    return int.from_bytes(thrown[:8], "big")


def _start(
    parts: WorkflowContext, tx: Transaction, policy: Policy, schedule: Schedule, fire: Fire
) -> None:
    """Ask for the run, or write down why not. What it waits for is looked at again later."""
    if schedule.standing is not ScheduleState.ACTIVE:
        _left_out(tx, schedule, fire, f"the schedule is {schedule.standing}")
        return
    founded = runs.get_run(tx, schedule.run)
    last = _not_over(tx, schedule, fire.host)
    overlap = Overlap.QUEUE if fire.why == _MADE_UP else schedule.timing.overlap
    if last is not None and overlap is Overlap.CANCEL and last.state in BEFORE_INTENT:
        why = f"Schedule {schedule.id} fires again"
        end_run(parts, tx, last, State.WITHDRAWN, why)
    elif last is not None and overlap is Overlap.SKIP:
        _left_out(tx, schedule, fire, f"run {last.id} was not over")
        return
    elif last is not None:
        return
    frozen = policy.frozen(host=founded.host, runbook=founded.words, now=tx.now)
    if frozen and founded.kind == "change":
        _left_out(tx, schedule, fire, frozen)
        return
    _ask(parts, tx, policy, schedule, fire)


def _ask(
    parts: WorkflowContext, tx: Transaction, policy: Policy, schedule: Schedule, fire: Fire
) -> None:
    founded = runs.get_run(tx, schedule.run)
    meant = schedule_approval.get_request_for_host(tx, founded, fire.host)
    new = _new(schedule, founded, meant)
    gone = [host for host in meant.hosts or (meant.host,) if host not in policy.inventory.hosts]
    if gone:
        why = f"not in the inventory any more: {', '.join(gone)}"
        _suspend(tx, schedule, fire, why, run=None)
        return
    parts_of_it = runs.list_children(tx, founded.id) if meant.hosts else []
    children = [_new(schedule, founded, part) for part in parts_of_it]
    run = record_request(parts, tx, policy, new, children)
    schedules.mark_started(tx, fire, FireOutcome.FIRED, run=run.id, why=fire.why)
    _log(tx, "fired", schedule, due=fire.due, fired=run.id, host=fire.host)
    if run.state is State.REFUSED:
        _suspend(tx, schedule, fire, run.summary, run=run.id)
        return
    try:
        schedule_approval.check_schedule_approval(parts, tx, schedule, founded)
    except schedule_approval.NotApproved as shut:
        end_run(parts, tx, run, State.REFUSED, str(shut))
        _suspend(tx, schedule, fire, str(shut), run=run.id, standing=ScheduleState.LAPSED)


def _new(schedule: Schedule, founded: Run, meant: Run) -> runs.NewRun:
    """Return the request for *meant*, with the values that were approved."""
    alone = meant.id != founded.id
    return runs.NewRun(
        words=meant.words,
        kind=meant.kind,
        fields={**founded.fields, "host": meant.host} if alone else founded.fields,
        request=meant.request,
        host=meant.host,
        area=meant.area,
        asked_by=schedule.owner,
        origin=Origin("schedule", channel=schedule.timing.channel, schedule=schedule.id),
        reason=f"schedule {schedule.id} “{schedule.timing.name}”",
        hosts=meant.hosts,
    )


def _not_over(tx: Transaction, schedule: Schedule, host: str) -> Run | None:
    number = schedules.get_last_run(tx, schedule.id, host=host)
    last = None if number is None else runs.get_run(tx, number)
    return None if last is None or last.over else last


def _left_out(tx: Transaction, schedule: Schedule, fire: Fire, why: str) -> None:
    schedules.mark_started(tx, fire, FireOutcome.SKIPPED, run=None, why=why)
    _log(tx, "fire skipped", schedule, due=fire.due, why=why, host=fire.host)


def _suspend(
    tx: Transaction,
    schedule: Schedule,
    fire: Fire,
    why: str,
    *,
    run: int | None,
    standing: ScheduleState = ScheduleState.SUSPENDED,
) -> None:
    """Fire no more: its owner may not have this done now, or it is not what was approved."""
    schedules.mark_started(tx, fire, FireOutcome.REFUSED, run=run, why=why)
    schedules.set_schedule_state(tx, schedule, standing, why)
    _log(tx, f"schedule {standing}", schedule, why=why)


def _fire(
    schedule: Schedule,
    due: int,
    host: str,
    outcome: FireOutcome,
    now: int,
    why: str,
    start: int | None = None,
) -> Fire:
    return Fire(
        schedule=schedule.id,
        due=due,
        host=host,
        outcome=outcome,
        start=due if start is None else start,
        at=now,
        run=None,
        why=why,
    )


def _log(
    tx: Transaction, what: str, schedule: Schedule, *, host: str = "", **facts: Canonical
) -> None:
    change_log.append_entry(
        tx, what, run=schedule.run, person=schedule.owner, host=host, schedule=schedule.id, **facts
    )
