"""Schedules, and the outcome of each of their due times.

The key of a fire is the schedule, the due time and the host. The process that inserts the row
fires; all others fail to insert it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Row, Select, case, func, insert, select, true, update

from bot.db import runs, tables, view_conditions
from bot.db.database import Transaction
from bot.model.errors import NoSuchSchedule
from bot.model.run import Run, State
from bot.model.schedule import FireOutcome, NotifyWhen, ScheduleState, ScheduleTiming
from bot.model.times import DAY

# How long ended schedules stay in the list.
ENDED_DAYS = 7
MISSED_DAYS = 30
_COLUMN = tables.schedule.c
_ORDER = (
    case({state.value: n for n, state in enumerate(ScheduleState)}, value=_COLUMN.state),
    _COLUMN.due_at.is_(None),
    _COLUMN.due_at,
    _COLUMN.id,
)


@dataclass(frozen=True)
class Schedule:
    """One schedule. Times are microseconds since 1970, UTC."""

    id: int
    run: int
    """The request that was approved."""
    state: ScheduleState
    owner: str
    timing: ScheduleTiming
    created_at: int
    lapses_at: int
    """When its approval expires."""
    decided_until: int
    """Every due time until then has its rows."""
    due_at: int | None
    """The next due time; None if there is none."""
    reason: str
    """Why it is in this state; may be empty."""


@dataclass(frozen=True)
class Fire:
    """The outcome of one due time."""

    schedule: int
    due_at: int
    host: str
    """Empty for all hosts in one run."""
    outcome: FireOutcome
    starts_at: int
    """When it starts, with the delay of its host."""
    recorded_at: int
    run: int | None
    reason: str


def add_schedule(
    tx: Transaction, *, run: int, owner: str, timing: ScheduleTiming, lapses: int
) -> Schedule:
    """Store a schedule that fires from now on."""
    row = tx.sql.execute(
        insert(tables.schedule)
        .values(
            run=run,
            state=ScheduleState.ACTIVE.value,
            owner=owner,
            timing=timing.to_json(),
            created_at=tx.now,
            lapses_at=lapses,
            decided_until=tx.now,
            due_at=_compute_next(timing, tx.now),
            reason="",
        )
        .returning(tables.schedule)
    ).one()
    return _build_schedule(row)


def get_schedule(tx: Transaction, number: int) -> Schedule:
    return _read_one(tx, select(tables.schedule).where(tables.schedule.c.id == number), number)


def lock_schedule(tx: Transaction, number: int) -> Schedule:
    """Return the schedule and lock it until this transaction ends."""
    query = select(tables.schedule).where(tables.schedule.c.id == number).with_for_update()
    return _read_one(tx, query, number)


def list_schedules(
    tx: Transaction,
    *,
    states: Collection[ScheduleState] = tuple(ScheduleState),
    most: int | None = None,
    skip: int = 0,
) -> list[Schedule]:
    """Return schedules whose request may be viewed, the active ones first, then by due time.

    most: how many of them; None for all. skip: how many before these.
    """
    return _list_viewable(tx, _COLUMN.state.in_(states), most, skip)


def list_shown_schedules(
    tx: Transaction, ended: Collection[int], *, most: int | None = None, skip: int = 0
) -> list[Schedule]:
    """Return schedules as list_schedules(). ended: the runs of the ended ones to include."""
    is_shown = (_COLUMN.state != ScheduleState.ENDED.value) | _COLUMN.run.in_(ended)
    return _list_viewable(tx, is_shown, most, skip)


def _list_viewable(
    tx: Transaction, is_listed: ColumnElement[bool], most: int | None, skip: int
) -> list[Schedule]:
    query = select(tables.schedule).where(is_listed, _may_view(tx))
    return [
        _build_schedule(row)
        for row in tx.sql.execute(query.order_by(*_ORDER).limit(most).offset(skip))
    ]


def count_schedules(
    tx: Transaction,
    state: ScheduleState,
    *,
    due_before: int | None = None,
    except_runs: Collection[int] = (),
) -> int:
    """Count the schedules in a state whose request may be viewed."""
    query = select(func.count()).where(
        _COLUMN.state == state.value, _COLUMN.run.not_in(except_runs), _may_view(tx)
    )
    if due_before is not None:
        query = query.where(_COLUMN.due_at < due_before)
    return tx.sql.execute(query).scalar_one()


def list_lapsing(tx: Transaction, before: int) -> list[Schedule]:
    """Return the active schedules whose approval expires before a time."""
    is_lapsing = (_COLUMN.state == ScheduleState.ACTIVE.value) & (_COLUMN.lapses_at < before)
    return _list_viewable(tx, is_lapsing, None, 0)


def _may_view(tx: Transaction) -> ColumnElement[bool]:
    """Return the condition on schedules whose request may be viewed."""
    condition = view_conditions.runs_condition(tx)
    if not condition.sql:
        return true()
    return _COLUMN.run.in_(select(tables.run.c.id).where(condition.clause()))


def get_next_due_time(tx: Transaction) -> int | None:
    """Return the soonest due time that is not over; None if there is none."""
    query = select(func.min(_COLUMN.due_at)).where(
        _COLUMN.state == ScheduleState.ACTIVE.value, _COLUMN.due_at > tx.now
    )
    return tx.sql.execute(query).scalar_one()


def list_due_schedules(tx: Transaction) -> list[int]:
    """Return the numbers of the active schedules that are due now."""
    column = tables.schedule.c
    query = select(column.id).where(
        column.state == ScheduleState.ACTIVE.value, column.due_at <= tx.now
    )
    return list(tx.sql.execute(query.order_by(column.due_at, column.id)).scalars())


def mark_decided(tx: Transaction, schedule: Schedule, until: int) -> None:
    """Record that every due time up to *until* has its rows."""
    _update(tx, schedule, decided_until=until, due_at=_compute_next(schedule.timing, until))


def set_schedule_state(
    tx: Transaction, schedule: Schedule, state: ScheduleState, reason: str
) -> None:
    """Change the state of a schedule. A resumed one does not catch up on past due times."""
    changes: dict[str, object] = {"state": state.value, "reason": reason}
    if state is ScheduleState.ACTIVE:
        changes |= {"decided_until": tx.now, "due_at": _compute_next(schedule.timing, tx.now)}
    _update(tx, schedule, **changes)


def record_fire(tx: Transaction, fire: Fire) -> bool:
    """Record the outcome of a due time; False if it has one already."""
    return tx.insert_once(tables.fire, **{**vars(fire), "outcome": fire.outcome.value})


def mark_started(
    tx: Transaction, fire: Fire, outcome: FireOutcome, *, run: int | None, why: str
) -> None:
    """Record the outcome of a fire that was to start later."""
    tx.sql.execute(
        update(tables.fire)
        .where(
            tables.fire.c.schedule == fire.schedule,
            tables.fire.c.due_at == fire.due_at,
            tables.fire.c.host == fire.host,
        )
        .values(outcome=outcome.value, run=run, reason=why, recorded_at=tx.now)
    )


def list_later_fires(tx: Transaction, *, most: int = 200) -> list[Fire]:
    """Return the fires that should start now."""
    query = (
        select(tables.fire)
        .where(tables.fire.c.outcome == FireOutcome.LATER.value, tables.fire.c.starts_at <= tx.now)
        .order_by(tables.fire.c.starts_at)
        .limit(most)
    )
    return [_build_fire(row) for row in tx.sql.execute(query)]


def is_still_waiting(tx: Transaction, fire: Fire) -> bool:
    """Return whether a later fire has not started yet. Lock its schedule first."""
    column = tables.fire.c
    query = select(column.outcome).where(
        column.schedule == fire.schedule, column.due_at == fire.due_at, column.host == fire.host
    )
    return tx.sql.execute(query).scalar_one_or_none() == FireOutcome.LATER.value


def list_fires(tx: Transaction, schedule: int, *, most: int = 50) -> Sequence[Fire]:
    """Return the outcomes of the newest due times, the newest first."""
    query = (
        select(tables.fire)
        .where(tables.fire.c.schedule == schedule)
        .order_by(tables.fire.c.due_at.desc(), tables.fire.c.host)
        .limit(most)
    )
    return [_build_fire(row) for row in tx.sql.execute(query)]


def get_last_run(
    tx: Transaction, schedule: int, *, host: str, before: int | None = None
) -> int | None:
    """Return the newest run that a schedule fired for a host; None if there is none.

    host: "" for all hosts in one run. before: only runs with a lower number.
    """
    column = tables.fire.c
    query = select(column.run).where(column.schedule == schedule, column.host == host)
    query = query.where(column.run.is_not(None) if before is None else column.run < before)
    return tx.sql.execute(query.order_by(column.run.desc()).limit(1)).scalar_one_or_none()


def get_fire_of_run(tx: Transaction, run: int) -> Fire | None:
    """Return the fire that requested a run; None if a person did."""
    row = tx.sql.execute(select(tables.fire).where(tables.fire.c.run == run)).one_or_none()
    return _build_fire(row) if row else None


def has_different_outcome(tx: Transaction, run: Run) -> bool:
    """Return whether a scheduled run ended differently from the one before it.

    True for other runs, and for schedules that always notify.
    """
    fired = get_fire_of_run(tx, run.id)
    if fired is None or get_schedule(tx, fired.schedule).timing.notify_when is NotifyWhen.ALWAYS:
        return True
    if not run.is_ended and run.state is not State.UNKNOWN:
        return False
    number = get_last_run(tx, fired.schedule, host=fired.host, before=run.id)
    return number is None or _get_result(runs.get_run(tx, number)) != _get_result(run)


def _get_result(run: Run) -> object:
    return run.state, run.summary, run.report


def _compute_next(timing: ScheduleTiming, after: int) -> int | None:
    return next(timing.cron_expression.iterate_due_times(after), None)


def _update(tx: Transaction, schedule: Schedule, **changes: object) -> None:
    tx.sql.execute(
        update(tables.schedule).where(tables.schedule.c.id == schedule.id).values(**changes)
    )


def _read_one(tx: Transaction, query: Select[tuple[object, ...]], number: int) -> Schedule:
    row = tx.sql.execute(query).one_or_none()
    if row is None or not view_conditions.list_viewable(tx, [row.run]):
        raise NoSuchSchedule(f"there is no schedule {number}")
    return _build_schedule(row)


def _build_schedule(row: Row[tuple[object, ...]]) -> Schedule:
    return Schedule(
        id=row.id,
        run=row.run,
        state=ScheduleState(row.state),
        owner=row.owner,
        timing=ScheduleTiming.from_json(row.timing),
        created_at=row.created_at,
        lapses_at=row.lapses_at,
        decided_until=row.decided_until,
        due_at=row.due_at,
        reason=row.reason,
    )


def _build_fire(row: Row[tuple[object, ...]]) -> Fire:
    return replace(Fire(*row), outcome=FireOutcome(row.outcome))


def count_missed(tx: Transaction, *, days: int = MISSED_DAYS) -> dict[int, int]:
    """Count the missed due times by schedule; schedules without any are left out."""
    fire, schedule = tables.fire.c, tables.schedule.c
    query = (
        select(fire.schedule, schedule.run, func.count())
        .join(tables.schedule, schedule.id == fire.schedule)
        .where(fire.outcome == FireOutcome.MISSED.value, fire.starts_at >= tx.now - days * DAY)
        .group_by(fire.schedule, schedule.run)
    )
    found = [tuple(row) for row in tx.sql.execute(query)]
    viewable = view_conditions.list_viewable(tx, [run for _, run, _ in found])
    return {number: count for number, run, count in found if run in viewable}
