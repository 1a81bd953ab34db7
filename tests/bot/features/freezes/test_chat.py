"""`/keyturn freeze`: list freezes, order one, end it."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from bot.model.run import State
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat
from tests.bot.slack.json_walk import list_texts
from tests.bot.slack.test_command_forms import CARD

pytestmark = pytest.mark.anyio


async def test_freezes_command_lists_active_and_upcoming_freezes(chat: Chat):
    assert "No freeze is active" in (await chat.type("freeze")).text
    today = datetime.now(UTC)
    (chat.harness.policies.path / "freezes.yaml").write_text(
        "freezes:\n"
        f"  - {{name: sale, areas: [edge], from: {today - timedelta(days=1):%Y-%m-%d} 00:00,"
        f" until: {today + timedelta(days=2):%Y-%m-%d} 00:00}}\n"
        f"  - {{name: holidays, from: {today + timedelta(days=9):%Y-%m-%d} 18:00,"
        f" until: {today + timedelta(days=12):%Y-%m-%d} 08:00}}\n"
    )
    answer = await chat.type("freezes")
    held, _, coming = " ".join(list_texts(answer.json["blocks"])).partition("Upcoming")
    assert "Active freezes" in held
    assert "sale  holds changes of the edge from " in held
    assert "holidays  will hold " in coming
    # Slack shows them in the time zone of its reader.
    begins = (today + timedelta(days=9)).replace(hour=18, minute=0, second=0, microsecond=0)
    assert f'"timestamp": {int(begins.timestamp())},' in json.dumps(answer.json["blocks"])


async def test_owner_freezes_hosts_and_ends_it(chat: Chat):
    said = await chat.read("freeze lb1, web* until 2 hours because the fair is on", "U0OLGA")
    assert "You froze  lb1 and web*  until" in said
    assert "/keyturn freeze end 1" in said
    listed = await chat.read("freeze", "U0OLGA")
    assert (
        "1  Olga Owner: the fair is on  holds changes of the edge and the web servers, on lb1"
        in listed
    )
    assert "End freeze 1…" in listed
    asked = await chat.read("can-i toy set lb1 lamp on", "U0DORA")
    assert "lb1 is frozen until" in asked
    assert "(Olga Owner: the fair is on)" in asked
    assert "You ended the freeze of lb1 and web*" in await chat.read("freeze end 1", "U0OLGA")
    assert "No freeze is active" in await chat.read("freeze", "U0OLGA")
    assert "o freeze 1 that a person ordered is active" in await chat.read(
        "freeze end #1", "U0OLGA"
    )


@pytest.mark.parametrize(
    ("typed", "user", "says"),
    [
        ("freeze lb1", "U0OLGA", "he time is missing"),
        ("freeze lb1 until 2 hours", "U0OLGA", "he reason is missing"),
        ("freeze lb1 until yesterday because x y z", "U0OLGA", "has passed already"),
        ("freeze db* until 2 hours because the fair", "U0OLGA", "o host matches 'db*'"),
        ("freeze lb1 until 2 hours because the fair", "U0DORA", "only owners of the edge"),
        ("freeze end", "U0OLGA", "he number is missing"),
    ],
)
async def test_freeze_command_says_what_is_wrong(chat: Chat, typed: str, user: str, says: str):
    assert says in await chat.read(typed, user)
    assert "No freeze is active" in await chat.read("freeze", "U0OLGA")


async def test_reading_by_mention_or_button_orders_no_freeze(chat: Chat) -> None:
    """Nothing is done by text that is written to the bot, but only by a command or a form."""
    for word in ("freeze", "freezes"):
        typed = f"<@U0KEYTURN> {word} lb1 until 2 hours because the fair"
        await chat.send(payloads.mention(typed, "U0OLGA"))
        await chat.settle()
        forged = f"{word} lb1 until 2 hours because x y z"
        await chat.press("read-0", "U0OLGA", message=CARD, value=forged)
    for forged in ("drift adopt 1", "schedule 1 end"):
        await chat.press("read-0", "U0OLGA", message=CARD, value=forged)
    assert "No freeze is active" in (await chat.type("freeze")).text
    await chat.type("toy set lb1 lamp on")
    assert chat.run().state is State.PENDING
