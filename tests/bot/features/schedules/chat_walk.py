"""Hostile text in all that can be done with schedules in chat."""

from bot.features.schedules import rows
from bot.model.schedule import ScheduleState
from tests.bot.features.schedules.due import fire_due_schedules, make_due_now
from tests.bot.slack.hostile_walk import Walk


async def use_schedules(walk: Walk) -> None:
    harness = walk.chat.harness
    await walk.each("schedule", "schedules", "schedule SAID", "schedule x SAID -- toy show lb1")
    await walk.say("schedule BRIEF cron='SAID' -- toy show lb1", "U0OLGA")
    await walk.say('schedule "BRIEF" cron=@daily -- toy say lb1 because SAID')
    await walk.each("schedules", "schedule 1", "schedule 1 suspend because SAID")
    await walk.each("schedule 1", "schedule 1 resume", "schedule 1 take because SAID")
    with harness.database.reading() as tx:
        found = rows.list_schedules(tx)
    [schedule] = [one for one in found if one.state is ScheduleState.ACTIVE]
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    await walk.chat.settle()
    await walk.each(f"schedule {schedule.id}", f"schedule {schedule.id} end because SAID")
