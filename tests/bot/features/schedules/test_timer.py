"""What a server runs for schedules: the timer that wakes at their due times."""

import asyncio
from datetime import UTC, datetime

import pytest

from bot.features.schedules import rows
from bot.features.schedules.runner import CronTrigger, ScheduleTimer
from bot.model.run import RequestTerms
from bot.model.schedule import FireOutcome, ScheduleTiming, parse_cron
from tests.bot.features.schedules.due import make_due_now
from tests.bot.harness import WEB, Harness
from tests.slack_emulator.serving import wait_until
from tests.toy import ShowSwitches

HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "UTC"))


@pytest.mark.anyio
async def test_timer_fires_what_is_due_until_it_is_cancelled(harness: Harness):
    harness.service.request_on_hosts(
        [ShowSwitches(host="lb1")], RequestTerms("dora", WEB, timing=HOURLY), host_pattern=""
    )
    harness.run_queued_work()
    with harness.database.reading() as tx:
        (schedule,) = rows.list_schedules(tx)
    make_due_now(harness, schedule)

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


def test_trigger_wakes_at_each_due_time_of_a_cron_expression():
    trigger = CronTrigger(parse_cron("0 3 * * *", "Europe/Amsterdam"))
    first = trigger.get_next_fire_time(None, datetime(2026, 12, 1, 12, tzinfo=UTC))
    assert first == datetime(2026, 12, 2, 2, tzinfo=UTC)
    later = datetime(2026, 12, 2, 2, 1, tzinfo=UTC)
    assert trigger.get_next_fire_time(first, later) == datetime(2026, 12, 3, 2, tzinfo=UTC)
