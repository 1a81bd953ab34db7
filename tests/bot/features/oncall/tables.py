"""It adds no route and no command."""

from tests.bot.duties import add_calendar
from tests.bot.features.oncall.shifts import set_shifts
from tests.bot.slack.hostile_walk import Walk


async def hand_over(walk: Walk) -> None:
    """Let a person come on duty, who gets the handover."""
    harness = walk.chat.harness
    add_calendar(harness.policies.path)
    set_shifts(harness, (-5, 500, "olga"))
    await walk.chat.door.direct_notices.send_due()


CHAT_WALKS = {"handover": hand_over}
PROGRAM_STARTERS = {
    "oncall/calendar_shifts.py": "expands calendars: reads its input and takes no argument"
}
