"""`/keyturn drift`, and the message about values that changed outside Keyturn."""

import pytest
from sqlalchemy import update

from bot.db import tables
from bot.features.drift import rows as drift
from bot.features.drift.rows import DriftKey
from tests.bot.harness import Harness
from tests.bot.slack.chat import Chat, open_chat
from tests.bot.slack.json_walk import list_texts
from tests.bot.slack.test_command_forms import list_buttons, press, submit
from tests.drift_keys import read_due_keys
from tests.ticket_system import require_unreachable_tickets
from tests.toy import KeepSwitch

pytestmark = pytest.mark.anyio


async def dim_by_hand(chat: Chat, *, host: str = "lb1", name: str = "lamp") -> DriftKey:
    """Set a switch, change it by hand, and have it read."""
    harness = chat.harness
    harness.approve(harness.request(KeepSwitch(host=host, name=name, value="on")))
    harness.fleet.hosts[host][name] = "dim"
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(next_at=0))
    read_due_keys(harness.service)
    await chat.settle()
    with harness.database.reading() as tx:
        return drift.list_keys(tx)[0]


def list_messages(chat: Chat) -> list[str]:
    return [
        str(call) for call in chat.slack.calls if "changed outside Keyturn between" in str(call)
    ]


async def test_drift_message_names_host_value_and_window_once(
    harness: Harness, anyio_backend: str
):
    async with open_chat(harness, default_channel="C0OPS") as chat:
        key = await dim_by_hand(chat)
        (message,) = list_messages(chat)
        assert "lb1: 1 value changed outside Keyturn" in message
        assert f"/keyturn drift {key.id}" in message
        await dim_by_hand(chat, name="fan")
        assert len(list_messages(chat)) == 1


async def test_drift_command_lists_watched_values(chat: Chat):
    assert "Keyturn watches no value here." in await chat.read("drift")
    await dim_by_hand(chat)
    text = await chat.read("drift lb1")
    assert "1 value changed outside Keyturn" in text
    assert "switch lamp  changed outside  dim" in text
    assert "No host is called" in str((await chat.type("drift lb9")).json)


async def test_drift_command_shows_a_value_with_its_possible_causes(chat: Chat):
    key = await dim_by_hand(chat)
    text = await chat.read(f"drift {key.id}")
    assert "switch lamp changed outside Keyturn between" in text
    assert "could not be read" in text
    assert text.endswith("Restore… Adopt… Expect…")


async def test_owner_accepts_drift_by_adopt_and_expect_commands(chat: Chat):
    key = await dim_by_hand(chat)
    text = await chat.read(f"drift expect {key.id} until 3 days because a test", "U0OLGA")
    assert "switch lamp on lb1 may vary until" in text
    refused = await chat.read(f"drift expect {key.id} until whenever because a test", "U0OLGA")
    assert "is not a time" in refused
    assert "the time is missing" in (await chat.read(f"drift expect {key.id}", "U0OLGA")).lower()
    late = await chat.read(f"drift adopt {key.id} because it is right", "U0OLGA")
    assert "nothing to adopt" in late


async def test_drift_restore_is_open_to_developers_and_drift_adopt_is_not(chat: Chat):
    key = await dim_by_hand(chat)
    refused = await chat.read(f"drift adopt {key.id} because it is right")
    assert "nly people who can approve toy keep on lb1" in refused
    await chat.type(f"drift restore {key.id} because of a mistake")
    assert chat.run(2).request == "toy keep lb1 lamp on"
    require_unreachable_tickets(chat.harness.policies.path)
    await chat.type(f"drift restore {key.id} ticket=CHG7 because of a mistake")
    assert chat.run(3).ticket == "CHG7"
    assert "The result: /keyturn drift lb1" in await chat.read("drift read lb1")


async def test_drift_message_loses_its_buttons_when_the_value_is_adopted(
    harness: Harness, anyio_backend: str
):
    async with open_chat(harness, default_channel="C0OPS") as chat:
        key = await dim_by_hand(chat)
        [posted] = [one for one in chat.slack.posted if "changed outside" in one.text]
        assert len(posted.buttons) == 3
        await chat.type(f"drift adopt {key.id} because it is right", "U0OLGA")
        assert posted.buttons == {}
        assert "what had changed outside Keyturn was restored or accepted" in posted.text
        assert "switch lamp was adopted: dim" in posted.words
        assert len(list_messages(chat)) == 1


async def test_drift_message_loses_its_buttons_when_a_run_restores_the_value(
    harness: Harness, anyio_backend: str
):
    async with open_chat(harness, default_channel="C0OPS") as chat:
        key = await dim_by_hand(chat)
        [posted] = [one for one in chat.slack.posted if "changed outside" in one.text]
        await chat.type(f"drift restore {key.id} because of a mistake")
        assert len(posted.buttons) == 3
        harness.approve(chat.run(2))
        await chat.settle()
        assert posted.buttons == {}
        assert "switch lamp is as set" in posted.words


async def test_drift_message_says_until_when_a_value_may_vary(
    harness: Harness, anyio_backend: str
):
    async with open_chat(harness, default_channel="C0OPS") as chat:
        key = await dim_by_hand(chat)
        [posted] = [one for one in chat.slack.posted if "changed outside" in one.text]
        await chat.type(f"drift expect {key.id} until 3 days because a test", "U0OLGA")
        assert "switch lamp may vary until" in posted.words
        assert posted.buttons == {}


async def test_drift_is_adopted_expected_and_restored_by_its_buttons(chat: Chat) -> None:
    key = await dim_by_hand(chat)
    answer = await chat.type(f"drift {key.id}", "U0OLGA")
    buttons = list_buttons(answer.json["blocks"])
    assert list(buttons) == ["Restore…", "Adopt…", "Expect…"]
    await press(chat, buttons["Adopt…"], "U0OLGA")
    form = list(chat.slack.views.values())[-1]
    assert f"/keyturn drift adopt {key.id} because …" in " ".join(list_texts(form["blocks"]))
    # The command's own checks, below the field; and as a person without the right.
    assert "reason" in await submit(chat, {}, "U0OLGA")
    refused = await submit(chat, {"because": "it is right"}, "U0DORA")
    assert "nly people who can approve toy keep on lb1" in refused
    said = await submit(chat, {"because": "it is <b>right</b> & <@U0DORA>\nhere"}, "U0OLGA")
    assert "You adopted switch lamp on lb1" in said
    await press(chat, buttons["Restore…"], "U0OLGA")
    assert "adopted value" in await submit(chat, {"because": "no"}, "U0OLGA")


async def test_value_is_expected_until_a_chosen_time(chat: Chat) -> None:
    key = await dim_by_hand(chat)
    buttons = list_buttons((await chat.type(f"drift {key.id}", "U0OLGA")).json["blocks"])
    await press(chat, buttons["Expect…"], "U0OLGA")
    [view] = chat.slack.views.values()
    [picker] = [one["element"] for one in view["blocks"] if one.get("block_id") == "until"]
    at = picker["initial_date_time"]
    state = {
        "until": {"form-value": {"type": "datetimepicker", "selected_date_time": at}},
        "because": {"form-value": {"type": "plain_text_input", "value": "a test"}},
    }
    answer = await chat.submit_state(state, "U0OLGA")
    assert "switch lamp on lb1 may vary until" in " ".join(list_texts(answer.json))
