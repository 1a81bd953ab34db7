"""Buttons that open the form of a command, which then runs as if the person had typed it."""

from typing import Any

import pytest

from bot.db import tables
from bot.features.schedules import rows as schedules
from bot.model.run import State
from bot.model.schedule import ScheduleState
from tests.bot.features.drift.test_chat import dim_by_hand
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat
from tests.bot.slack.json_walk import list_texts
from tests.bot.slack.web_api import Posted

pytestmark = pytest.mark.anyio
CARD = Posted("C0OPS", "1.1", "", [])


def _list_buttons(blocks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    rows = [block["elements"] for block in blocks if block["type"] == "actions"]
    return {one["text"]["text"]: one for row in rows for one in row}


async def _press(chat: Chat, shown: dict[str, Any], user: str) -> None:
    await chat.press(shown["action_id"], user, message=CARD, value=shown["value"])


async def _submit(chat: Chat, values: dict[str, str], user: str) -> str:
    answer = await chat.submit(values, user)
    return " ".join([*list_texts(answer.json), *answer.json.get("errors", {}).values()])


async def test_drift_is_adopted_expected_and_restored_by_its_buttons(chat: Chat) -> None:
    key = await dim_by_hand(chat)
    answer = await chat.type(f"drift {key.id}", "U0OLGA")
    buttons = _list_buttons(answer.json["blocks"])
    assert list(buttons) == ["Restore…", "Adopt…", "Expect…"]
    await _press(chat, buttons["Adopt…"], "U0OLGA")
    form = list(chat.slack.views.values())[-1]
    assert f"/keyturn drift adopt {key.id} because …" in " ".join(list_texts(form["blocks"]))
    # The command's own checks, below the field; and as a person without the right.
    assert "reason" in await _submit(chat, {}, "U0OLGA")
    refused = await _submit(chat, {"because": "it is right"}, "U0DORA")
    assert "nly people who can approve toy keep on lb1" in refused
    said = await _submit(chat, {"because": "it is <b>right</b> & <@U0DORA>\nhere"}, "U0OLGA")
    assert "You adopted switch lamp on lb1" in said
    await _press(chat, buttons["Restore…"], "U0OLGA")
    assert "adopted value" in await _submit(chat, {"because": "no"}, "U0OLGA")


async def test_value_is_expected_until_a_chosen_time(chat: Chat) -> None:
    key = await dim_by_hand(chat)
    buttons = _list_buttons((await chat.type(f"drift {key.id}", "U0OLGA")).json["blocks"])
    await _press(chat, buttons["Expect…"], "U0OLGA")
    [view] = chat.slack.views.values()
    [picker] = [one["element"] for one in view["blocks"] if one.get("block_id") == "until"]
    at = picker["initial_date_time"]
    state = {
        "until": {"form-value": {"type": "datetimepicker", "selected_date_time": at}},
        "because": {"form-value": {"type": "plain_text_input", "value": "a test"}},
    }
    answer = await chat.submit_state(state, "U0OLGA")
    assert "switch lamp on lb1 may vary until" in " ".join(list_texts(answer.json))


async def test_schedule_is_suspended_taken_over_and_ended_by_its_buttons(chat: Chat) -> None:
    await chat.type('schedule "look" cron="0 3 * * *" zone=UTC -- toy show lb1')
    chat.harness.run_queued_work()
    listed = _list_buttons((await chat.type("schedules")).json["blocks"])
    await _press(chat, listed["1 look"], "U0OLGA")
    shown = _list_buttons(chat.slack.whispers("U0OLGA")[-1].blocks)
    assert list(shown) == ["Suspend…", "End…", "Take over…"]
    for name, state in (("Suspend…", ScheduleState.SUSPENDED), ("End…", ScheduleState.ENDED)):
        await _press(chat, shown[name], "U0OLGA")
        await _submit(chat, {"because": "the fair"}, "U0OLGA")
        with chat.harness.database.reading() as tx:
            found = schedules.get_schedule(tx, 1)
        assert (found.state, "the fair" in found.reason) == (state, True)
    assert _list_buttons((await chat.type("schedule 1")).json["blocks"]) == {}


async def test_grant_and_delegation_are_ended_by_their_buttons(chat: Chat) -> None:
    await chat.type("grant dora toy set lb* 5 an hour until 4h because the fair", "U0OLGA")
    await chat.type("delegate to stan for 2 hours because away", "U0OLGA")
    for command, table in (("grants", "standing_grant"), ("delegations", "delegation")):
        shown = _list_buttons((await chat.type(command, "U0OLGA")).json["blocks"])
        await _press(chat, shown["End 1…"], "U0OLGA")
        assert "has ended" in await _submit(chat, {}, "U0OLGA")
        with chat.harness.database.reading() as tx:
            [row] = tx.sql.execute(tables.metadata.tables[table].select())
        assert row.revoked_at is not None


async def test_plain_request_for_two_hosts_is_one_request(chat: Chat) -> None:
    typed = "<@U0KEYTURN> please set the switch lamp to on at lb1 and lb2, because it is dark"
    await chat.send(payloads.mention(typed, "U0DORA"))
    await chat.settle()
    shown = _list_buttons(chat.slack.whispers("U0DORA")[0].blocks)
    values = [one["value"] for one in shown.values()]
    [both] = [one for one in shown.values() if "toy set" in one["value"]]
    assert "host=lb1,lb2" in both["value"], values
    await _press(chat, both, "U0DORA")
    view = list(chat.slack.views.values())[-1]
    text = " ".join(list_texts(view["blocks"]))
    assert "/keyturn toy set " in text
    assert "host=lb1,lb2" in text
    [reason] = [one["element"] for one in view["blocks"] if one.get("block_id") == "because"]
    assert reason["initial_value"] == "it is dark"
    assert "It is requested" in await _submit(chat, {"because": "it is dark"}, "U0DORA")
    assert (chat.run().hosts, chat.run().reason) == (("lb1", "lb2"), "it is dark")


@pytest.mark.parametrize("value", ["", "r:Adopt", "x:Adopt:drift adopt 1", "drift adopt 1"])
async def test_forged_command_button_is_refused(chat: Chat, value: str) -> None:
    await chat.press("command-0", "U0OLGA", message=CARD, value=value)
    assert "out of date" in chat.slack.whispers("U0OLGA")[0].text
    assert chat.slack.views == {}


async def test_reading_by_mention_or_button_orders_no_freeze(chat: Chat) -> None:
    """Nothing is done by text that is written to the bot, but only by a command or a form."""
    typed = "<@U0KEYTURN> freeze lb1 until 2 hours because the fair"
    await chat.send(payloads.mention(typed, "U0OLGA"))
    await chat.settle()
    for forged in ("freeze lb1 until 2 hours because x y z", "drift adopt 1", "schedule 1 end"):
        await chat.press("read-0", "U0OLGA", message=CARD, value=forged)
    assert "No freeze is active" in (await chat.type("freeze")).text
    await chat.type("toy set lb1 lamp on")
    assert chat.run().state is State.PENDING
