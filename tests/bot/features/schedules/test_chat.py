"""Schedules in Slack."""

import pytest

from bot.db import runs
from bot.features.schedules import rows as schedules
from bot.model.run import State
from bot.model.schedule import ScheduleState
from tests.bot.features.schedules.due import (
    fire_due_schedules,
    make_due_now,
    move_decided_moments_back,
    record_missed_moments,
)
from tests.bot.slack.asgi import Answer
from tests.bot.slack.chat import Chat
from tests.bot.slack.json_walk import list_texts
from tests.bot.slack.test_command_forms import list_buttons, press, submit

pytestmark = pytest.mark.anyio

LOOK = 'schedule "look around" cron="0 3 * * *" zone=Europe/Amsterdam -- toy show lb1'


def words(answer: Answer) -> str:
    return " ".join(list_texts(answer.json["blocks"]))


async def _start_schedule(chat: Chat) -> None:
    await chat.type(LOOK)
    chat.harness.run_queued_work()


async def test_schedule_command_alone_shows_its_usage(chat: Chat):
    shown = words(await chat.type("schedule"))
    assert "cron=…" in shown
    assert "zfs scrub start nas1 tank" in shown
    assert "No schedules yet" in (await chat.type("schedules")).text


async def test_schedule_of_a_check_is_active_at_once_and_listed(chat: Chat):
    await _start_schedule(chat)
    listed = words(await chat.type("schedules"))
    assert "1 look around" in listed
    assert "toy show lb1" in listed
    assert "At 03:00 every day (Europe/Amsterdam)" in listed
    one = words(await chat.type("schedule 1"))
    assert "Owner: Dora Developer" in one
    assert one.count("03:00 CE") == 5


async def test_missed_schedule_times_are_counted(chat: Chat):
    await _start_schedule(chat)
    assert "missed" not in words(await chat.type("schedules"))
    record_missed_moments(chat.harness.database, 1, times=2)
    for typed in ("schedules", "schedule 1"):
        assert "2 missed in 30 days" in words(await chat.type(typed))


async def test_schedule_command_accepts_long_dashes_and_smart_quotes(chat: Chat):
    await chat.type("schedule “look around” cron=“0 3 * * *” — toy show lb1")
    chat.harness.run_queued_work()
    assert "look around" in words(await chat.type("schedules"))


async def test_schedule_of_a_change_needs_approval_and_shows_its_times(chat: Chat):
    await chat.type('schedule fans cron="0 5 * * MON" -- toy set lb1 fan on because it is winter')
    chat.harness.run_queued_work()
    run = chat.harness.get_run(1)
    assert (run.state, run.reason) == (State.PENDING, "it is winter")
    card = words(await chat.type("run 1"))
    assert "schedule “fans”: toy set lb1 fan on" in card
    assert "At 05:00 on Monday (UTC)" in card
    assert "Next:  Mon " in card
    assert "Approved once. Later runs need no approval for 90 days" in card
    assert "Nobody" not in card


async def test_schedule_of_an_irreversible_change_needs_confirmation(chat: Chat):
    await chat.type('schedule melting cron="0 5 * * MON" -- toy melt lb1 lamp')
    [plan] = chat.slack.posted
    assert (plan.seen_by, chat.run().state) == ("U0DORA", State.PLANNED)
    assert "Cannot be undone" in plan.words
    assert "At 05:00 on Monday (UTC)" in plan.words
    assert "Request approval all the same" in str(plan.buttons["submit"])
    await chat.press("submit", "U0DORA", message=plan)
    assert chat.run().state is State.PENDING


async def test_schedule_is_suspended_resumed_and_ended_by_command(chat: Chat):
    await _start_schedule(chat)
    assert (
        "is suspended. It does not run until"
        in (await chat.type("schedule 1 suspend because moving")).text
    )
    assert "suspended: by Dora Developer: moving" in words(await chat.type("schedule 1"))
    assert "is suspended already" in (await chat.type("schedule suspend 1")).text
    assert "is active. Next run:" in (await chat.type("schedule resume 1")).text
    assert "has ended" in (await chat.type("schedule 1 end")).text
    assert "No schedules yet" in (await chat.type("schedules")).text


async def test_schedule_suspension_is_refused_to_people_without_the_right(chat: Chat):
    await _start_schedule(chat)
    reply = (await chat.type("schedule 1 suspend", "U0STAN")).text
    assert "Only the owners of" in reply


async def test_schedule_take_command_transfers_the_schedule(chat: Chat):
    await _start_schedule(chat)
    await chat.type("schedule 1 take", "U0OLGA")
    chat.harness.run_queued_work()
    with chat.harness.database.reading() as tx:
        assert [each.owner for each in schedules.list_schedules(tx)] == ["olga", "dora"]
        assert runs.get_run(tx, 2).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schedule 7", "There is no schedule 7."),
        ("schedule 7 end", "There is no schedule 7."),
        ("schedule fans", "Type /keyturn schedule NAME"),
        ("schedule fans cron=@daily --", "Type /keyturn schedule NAME"),
        ("schedule fans cron=0 3 * * * -- toy show lb1", "put values with spaces in quotation"),
        ("schedule fans zone=UTC -- toy show lb1", "Cron is missing"),
        ("schedule fans cron=@daily zone=Mars -- toy show lb1", "Unknown time zone 'Mars'"),
        ('schedule fans cron="* * * * *" -- toy set lb1 fan on', "every 10 minutes at most"),
        ("schedule fans cron=@daily -- toy sho lb1", "Did you mean"),
        ("schedule fans cron=@daily -- toy show lb9", "There is no host 'lb9'"),
    ],
)
async def test_invalid_schedule_command_is_refused_without_a_request(
    chat: Chat, text: str, message: str
):
    assert message in (await chat.type(text)).text
    assert chat.harness.list_entry_kinds() == []


async def test_scheduled_check_is_posted_only_when_its_result_changes(chat: Chat):
    await _start_schedule(chat)
    await chat.settle()
    posted_before = len(chat.slack.posted)

    async def fire(value: str) -> int:
        chat.harness.fleet.hosts["lb1"]["lamp"] = value
        with chat.harness.database.reading() as tx:
            [schedule] = schedules.list_schedules(tx)
        move_decided_moments_back(chat.harness)
        make_due_now(chat.harness, schedule)
        fire_due_schedules(chat.harness)
        await chat.settle()
        return len(chat.slack.posted) - posted_before

    assert await fire("off") == 1
    assert await fire("off") == 1
    assert await fire("on") == 2


async def test_schedule_is_suspended_taken_over_and_ended_by_its_buttons(chat: Chat) -> None:
    await chat.type('schedule "look" cron="0 3 * * *" zone=UTC -- toy show lb1')
    chat.harness.run_queued_work()
    listed = list_buttons((await chat.type("schedules")).json["blocks"])
    await press(chat, listed["1 look"], "U0OLGA")
    shown = list_buttons(chat.slack.whispers("U0OLGA")[-1].blocks)
    assert list(shown) == ["Suspend…", "End…", "Take over…"]
    for name, state in (("Suspend…", ScheduleState.SUSPENDED), ("End…", ScheduleState.ENDED)):
        await press(chat, shown[name], "U0OLGA")
        await submit(chat, {"because": "the fair"}, "U0OLGA")
        with chat.harness.database.reading() as tx:
            found = schedules.get_schedule(tx, 1)
        assert (found.state, "the fair" in found.reason) == (state, True)
    assert list_buttons((await chat.type("schedule 1")).json["blocks"]) == {}
