"""Schedules, and what became of each moment that they were due at.

A fire is a row whose key is the schedule, the moment and the host: whoever inserts it fires, and
nobody fires it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Row, Select, func, insert, select, update

from bot.db import runs, tables, view_conditions
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.model.schedule import NotifyWhen, ScheduleTiming

# So long schedules that have ended are listed among the others.
ENDED_DAYS = 7
MISSED_DAYS = 30
_DAY = 86_400_000_000


class ScheduleState(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"  # by a person, or since its owner may no longer have it done
    LAPSED = "lapsed"  # its approval is too old
    ENDED = "ended"


class FireOutcome(StrEnum):
    FIRED = "fired"  # a run was asked for
    LATER = "later"  # decided, and starts at its own moment
    SKIPPED = "skipped"  # the last run was not over, or a freeze held
    MISSED = "missed"  # nobody was there at that moment
    REFUSED = "refused"  # its owner may not have it done, or it left what was approved


@dataclass(frozen=True)
class Schedule:
    """One schedule. run: the request that was approved. Times are microseconds since 1970, UTC.

    lapses: when its approval ends. decided: up to when every due moment has its row.
    due: when it fires next. why: what somebody should know about its standing.
    """

    id: int
    run: int
    state: ScheduleState
    owner: str
    timing: ScheduleTiming
    created_at: int
    lapses_at: int
    decided_until: int
    due_at: int | None
    reason: str


@dataclass(frozen=True)
class Fire:
    """What became of one moment. host: "" for all hosts at once. start: when it was to start."""

    schedule: int
    due_at: int
    host: str
    outcome: FireOutcome
    starts_at: int
    recorded_at: int
    run: int | None
    reason: str


class NoSuchSchedule(Exception):
    """There is no schedule with this number."""


def add_schedule(
    tx: Transaction, *, run: int, owner: str, timing: ScheduleTiming, lapses: int
) -> Schedule:
    """Begin to fire: from now on, never for a moment that is over."""
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
            due_at=_next(timing, tx.now),
            reason="",
        )
        .returning(tables.schedule)
    ).one()
    return _schedule(row)


def get_schedule(tx: Transaction, number: int) -> Schedule:
    return _one(tx, select(tables.schedule).where(tables.schedule.c.id == number), number)


def lock_schedule(tx: Transaction, number: int) -> Schedule:
    """Return the schedule and keep others from changing it until this transaction ends."""
    query = select(tables.schedule).where(tables.schedule.c.id == number).with_for_update()
    return _one(tx, query, number)


def get_by_run(tx: Transaction, run: int) -> Schedule | None:
    """Return the schedule that a request was approved for; None while it has not begun."""
    row = tx.sql.execute(select(tables.schedule).where(tables.schedule.c.run == run)).one_or_none()
    return _schedule(row) if row else None


def list_schedules(tx: Transaction) -> list[Schedule]:
    """Return all of them, those that fire first."""
    found = _seen(tx, [_schedule(row) for row in tx.sql.execute(select(tables.schedule))])
    order = list(ScheduleState)
    return sorted(found, key=lambda each: (order.index(each.state), each.due_at or 0, each.id))


def _seen(tx: Transaction, found: Sequence[Schedule]) -> list[Schedule]:
    """Return those whose request may be viewed."""
    seen = view_conditions.list_viewable(tx, [one.run for one in found])
    return [one for one in found if one.run in seen]


def list_recent_schedules(tx: Transaction) -> tuple[list[Schedule], int]:
    """Return those that have not ended, or have lately; and how many had ended before."""
    found = list_schedules(tx)
    entry = tables.entry.c
    query = select(entry.run).where(
        entry.kind == "schedule ended", entry.at > tx.now - ENDED_DAYS * _DAY
    )
    lately = set(tx.sql.execute(query).scalars())
    shown = [one for one in found if one.state is not ScheduleState.ENDED or one.run in lately]
    return shown, len(found) - len(shown)


def list_timings(tx: Transaction) -> dict[int, ScheduleTiming]:
    """Return when each of those fires that fire now, by its number."""
    column = tables.schedule.c
    query = select(column.id, column.timing).where(column.state == ScheduleState.ACTIVE.value)
    return {row.id: ScheduleTiming.from_json(row.timing) for row in tx.sql.execute(query)}


def list_due_schedules(tx: Transaction) -> list[int]:
    """Return the numbers of those that have something to decide or to end now."""
    column = tables.schedule.c
    query = select(column.id).where(
        column.state == ScheduleState.ACTIVE.value, column.due_at <= tx.now
    )
    return list(tx.sql.execute(query.order_by(column.due_at, column.id)).scalars())


def mark_decided(tx: Transaction, schedule: Schedule, until: int) -> None:
    """Say that every moment up to *until* has its row."""
    _change(tx, schedule, decided_until=until, due_at=_next(schedule.timing, until))


def set_schedule_state(
    tx: Transaction, schedule: Schedule, standing: ScheduleState, why: str
) -> None:
    """Change whether it fires. One that fires again never fires for a moment that is over."""
    changes: dict[str, object] = {"state": standing.value, "reason": why}
    if standing is ScheduleState.ACTIVE:
        changes |= {"decided_until": tx.now, "due_at": _next(schedule.timing, tx.now)}
    _change(tx, schedule, **changes)


def record_fire(tx: Transaction, fire: Fire) -> bool:
    """Write down what becomes of a moment; False if that was decided before."""
    return tx.insert_once(
        tables.fire,
        schedule=fire.schedule,
        due_at=fire.due_at,
        host=fire.host,
        outcome=fire.outcome.value,
        starts_at=fire.starts_at,
        recorded_at=fire.recorded_at,
        run=fire.run,
        reason=fire.reason,
    )


def mark_started(
    tx: Transaction, fire: Fire, outcome: FireOutcome, *, run: int | None, why: str
) -> None:
    """Write down what became of a fire that was to start later."""
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
    """Return the fires whose own moment has come."""
    query = (
        select(tables.fire)
        .where(tables.fire.c.outcome == FireOutcome.LATER.value, tables.fire.c.starts_at <= tx.now)
        .order_by(tables.fire.c.starts_at)
        .limit(most)
    )
    return [_fire(row) for row in tx.sql.execute(query)]


def is_still_waiting(tx: Transaction, fire: Fire) -> bool:
    """Whether nobody has started it meanwhile. Ask while its schedule is held."""
    column = tables.fire.c
    query = select(column.outcome).where(
        column.schedule == fire.schedule, column.due_at == fire.due_at, column.host == fire.host
    )
    return tx.sql.execute(query).scalar_one_or_none() == FireOutcome.LATER.value


def list_fires(tx: Transaction, schedule: int, *, most: int = 50) -> Sequence[Fire]:
    """Return what became of the newest moments, the newest first."""
    query = (
        select(tables.fire)
        .where(tables.fire.c.schedule == schedule)
        .order_by(tables.fire.c.due_at.desc(), tables.fire.c.host)
        .limit(most)
    )
    return [_fire(row) for row in tx.sql.execute(query)]


def get_last_run(
    tx: Transaction, schedule: int, *, host: str, before: int | None = None
) -> int | None:
    """Return the newest run that it fired for *host* ("" for all at once); None if there is none.

    before: of those with a smaller number.
    """
    column = tables.fire.c
    query = select(column.run).where(column.schedule == schedule, column.host == host)
    query = query.where(column.run.is_not(None) if before is None else column.run < before)
    return tx.sql.execute(query.order_by(column.run.desc()).limit(1)).scalar_one_or_none()


def get_fire_of_run(tx: Transaction, run: int) -> Fire | None:
    """Return the fire that asked for a run; None if a person did."""
    row = tx.sql.execute(select(tables.fire).where(tables.fire.c.run == run)).one_or_none()
    return _fire(row) if row else None


def has_different_outcome(tx: Transaction, run: Run) -> bool:
    """Whether a run that a schedule asked for has ended otherwise than the one before it."""
    fired = get_fire_of_run(tx, run.id)
    if fired is None or get_schedule(tx, fired.schedule).timing.notify_when is NotifyWhen.ALWAYS:
        return True
    if not run.is_ended and run.state is not State.UNKNOWN:
        return False
    number = get_last_run(tx, fired.schedule, host=fired.host, before=run.id)
    return number is None or _ending(runs.get_run(tx, number)) != _ending(run)


def _ending(run: Run) -> object:
    return run.state, run.summary, run.report


def _next(timing: ScheduleTiming, after: int) -> int | None:
    return next(timing.cron_expression.iterate_due_times(after), None)


def _change(tx: Transaction, schedule: Schedule, **changes: object) -> None:
    tx.sql.execute(
        update(tables.schedule).where(tables.schedule.c.id == schedule.id).values(**changes)
    )


def _one(tx: Transaction, query: Select[tuple[object, ...]], number: int) -> Schedule:
    row = tx.sql.execute(query).one_or_none()
    if row is None or not view_conditions.list_viewable(tx, [row.run]):
        raise NoSuchSchedule(f"there is no schedule {number}")
    return _schedule(row)


def _schedule(row: Row[tuple[object, ...]]) -> Schedule:
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


def _fire(row: Row[tuple[object, ...]]) -> Fire:
    return Fire(
        schedule=row.schedule,
        due_at=row.due_at,
        host=row.host,
        outcome=FireOutcome(row.outcome),
        starts_at=row.starts_at,
        recorded_at=row.recorded_at,
        run=row.run,
        reason=row.reason,
    )


def count_missed(tx: Transaction, *, days: int = MISSED_DAYS) -> dict[int, int]:
    """Count the moments at which nobody was there, by schedule; those without any are left out."""
    fire, schedule = tables.fire.c, tables.schedule.c
    query = (
        select(fire.schedule, schedule.run, func.count())
        .join(tables.schedule, schedule.id == fire.schedule)
        .where(fire.outcome == FireOutcome.MISSED.value, fire.starts_at >= tx.now - days * _DAY)
        .group_by(fire.schedule, schedule.run)
    )
    found = [tuple(row) for row in tx.sql.execute(query)]
    seen = view_conditions.list_viewable(tx, [run for _, run, _ in found])
    return {number: count for number, run, count in found if run in seen}
