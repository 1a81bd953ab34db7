"""What a server runs for schedules: the timer that wakes at their due times."""

import asyncio

import pytest
from sqlalchemy import update

from bot.db import tables
from bot.features.schedules import rows, runner
from bot.features.schedules.rows import Schedule
from bot.features.schedules.runner import ScheduleTimer
from bot.model.run import RequestTerms
from bot.model.schedule import FireOutcome, ScheduleState, ScheduleTiming, parse_cron
from bot.model.times import SECOND
from tests.bot.features.schedules.due import make_due_now
from tests.bot.harness import WEB, Harness
from tests.slack_emulator.serving import wait_until
from tests.toy import ShowSwitches

HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "UTC"))
DAILY = ScheduleTiming("daily", parse_cron("0 3 * * *", "UTC"))


def _start_hourly(harness: Harness) -> Schedule:
    harness.service.request_on_hosts(
        [ShowSwitches(host="lb1")], RequestTerms("dora", WEB, timing=HOURLY), host_pattern=""
    )
    harness.run_queued_work()
    with harness.database.reading() as tx:
        (schedule,) = rows.list_schedules(tx)
    make_due_now(harness, schedule)
    return schedule


async def _wait_for_fire(harness: Harness, schedule: Schedule) -> None:
    """Run the timer until the schedule has fired."""

    def has_fired() -> bool:
        with harness.database.reading() as tx:
            fires = rows.list_fires(tx, schedule.id)
        return [fire.outcome for fire in fires] == [FireOutcome.FIRED]

    timer = harness.service.bind(ScheduleTimer)
    running = asyncio.create_task(timer.run_until_cancelled())
    await wait_until(has_fired)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.anyio
async def test_timer_fires_what_is_due_until_it_is_cancelled(harness: Harness):
    await _wait_for_fire(harness, _start_hourly(harness))


@pytest.mark.anyio
async def test_timer_wakes_at_the_due_time(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    schedule = _start_hourly(harness)
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.schedule).values(due_at=tx.now + SECOND))
    monkeypatch.setattr(runner, "INTERVAL_SECONDS", 3600)
    await _wait_for_fire(harness, schedule)


def test_next_due_time_is_the_soonest_of_an_active_schedule(harness: Harness):
    for timing in (HOURLY, DAILY):
        harness.service.request_on_hosts(
            [ShowSwitches(host="lb1")], RequestTerms("dora", WEB, timing=timing), host_pattern=""
        )
    harness.run_queued_work()
    with harness.database.transaction() as tx:
        hourly, daily = sorted(rows.list_schedules(tx), key=lambda one: one.id)
        assert rows.get_next_due_time(tx) == hourly.due_at
        rows.set_schedule_state(tx, hourly, ScheduleState.SUSPENDED, "")
        assert rows.get_next_due_time(tx) == daily.due_at
        rows.set_schedule_state(tx, daily, ScheduleState.ENDED, "")
        assert rows.get_next_due_time(tx) is None
