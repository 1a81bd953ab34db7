"""Schedules that are due now."""

from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import update

from bot.audit import change_log, events
from bot.db import tables
from bot.db.database import Database
from bot.features.schedules import rows as schedules
from bot.features.schedules import runner
from bot.features.schedules.rows import Fire, Schedule
from bot.model.run import Run
from bot.model.schedule import FireOutcome, parse_cron
from tests.bot.clock import MINUTE
from tests.bot.harness import Harness


def make_due_now(harness: Harness, schedule: Schedule) -> None:
    """Let this very minute be a moment of the schedule, and the only one of this day."""
    with harness.database.transaction() as tx:
        minute = tx.now // MINUTE * MINUTE
        at = datetime.fromtimestamp(minute // 1_000_000, UTC)
        daily = replace(
            schedule.timing, cron_expression=parse_cron(f"{at.minute} {at.hour} * * *", "UTC")
        )
        tx.sql.execute(
            update(tables.schedule)
            .where(tables.schedule.c.id == schedule.id)
            .values(decided_until=minute - 1, due_at=minute, timing=daily.to_json())
        )
        # As if it had been approved so: what the log does not confirm fires nothing.
        change_log.append_entry(
            tx,
            events.Scheduled(
                schedule=schedule.id, timing=daily.document, lapses_at=schedule.lapses_at
            ),
            run=schedule.run,
            person=schedule.owner,
        )


def move_decided_moments_back(harness: Harness) -> None:
    """Let every moment that was decided have been an hour earlier."""
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.fire).values(due_at=tables.fire.c.due_at - 60 * MINUTE))


def record_missed_moments(database: Database, schedule: int, *, times: int) -> None:
    """Let so many moments of an hour ago have been missed."""
    with database.transaction() as tx:
        for n in range(times):
            at = tx.now - (60 + n) * MINUTE
            schedules.record_fire(
                tx, Fire(schedule, at, "", FireOutcome.MISSED, at, tx.now, None, "")
            )


def fire_due_schedules(harness: Harness) -> None:
    """Let the clock look, and do what comes of it."""
    harness.service.bind(runner.fire_due_schedules)
    harness.run_queued_work()


def fire_schedule(harness: Harness) -> Run:
    """Let the only schedule be due now and fire, and return its run."""
    with harness.database.reading() as tx:
        (schedule,) = schedules.list_schedules(tx)
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    with harness.database.reading() as tx:
        number = schedules.get_last_run(tx, schedule.id, host="")
    assert number
    return harness.get_run(number)
