"""The handover: one message to the person who comes on duty, with what is open and its buttons."""

import pytest

from bot.features.oncall import rows
from bot.features.oncall.handover import list_started_duties
from bot.features.oncall.shift import Shift
from bot.model.times import MINUTE
from tests.bot.duties import add_calendar
from tests.bot.features.drift.test_chat import dim_by_hand
from tests.bot.harness import Harness
from tests.bot.slack.chat import Chat, open_chat

pytestmark = pytest.mark.anyio
FREEZE = (
    'freezes: [{name: fair, areas: [edge], from: "1999-01-01 00:00", until: "2199-01-01 00:00"}]'
)


def _set_shifts(harness: Harness, *shifts: tuple[int, int, str]) -> None:
    """Let people be on duty. shifts: from and until in minutes from now, and the person."""
    calendar = harness.policies.get_policy().calendars["edge"]
    with harness.database.transaction() as tx:
        rows.claim_fetch(tx, calendar, seconds=0)
        built = [
            Shift(tx.now + start * MINUTE, tx.now + end * MINUTE, (f"{who}@example.com",), "Edge")
            for start, end, who in shifts
        ]
        rows.store_shifts(tx, calendar, built)


@pytest.mark.parametrize(
    ("shifts", "people"),
    [
        ([(-500, -5, "dora"), (-5, 500, "olga")], ["olga"]),
        # It goes on, it has not begun, it began long ago, it is over.
        ([(-500, -5, "olga"), (-5, 500, "olga")], []),
        ([(5, 500, "olga")], []),
        ([(-11, 500, "olga")], []),
        ([(-5, -1, "olga")], []),
        ([(-5, 500, "olga"), (-5, 500, "adam")], ["adam", "olga"]),
    ],
)
def test_duty_that_has_just_begun_is_handed_over(
    harness: Harness, shifts: list[tuple[int, int, str]], people: list[str]
) -> None:
    add_calendar(harness.policies.path)
    _set_shifts(harness, *shifts)
    with harness.database.reading() as tx:
        found = list_started_duties(tx, harness.policies.get_policy())
    assert sorted(one.person for one in found) == people
    assert {(one.calendar, *one.areas) for one in found} <= {("edge", "edge")}


async def test_person_who_comes_on_duty_gets_what_is_open_once(
    harness: Harness, anyio_backend: str
) -> None:
    add_calendar(harness.policies.path)
    async with open_chat(harness, default_channel="C0OPS") as chat:
        await dim_by_hand(chat)
        await chat.type("toy set lb1 fan on because it is hot")
        await chat.type("grant dora toy set lb* 5 an hour until 3h because the fair", "U0ADAM")
        (harness.policies.path / "freezes.yaml").write_text(FREEZE)
        _set_shifts(harness, (-500, -5, "adam"), (-5, 500, "olga"))
        await _hand_over(chat)
        message = next(one for one in chat.slack.seen_in("D0OLGA") if "On duty" in one.text)
        assert message.text.startswith("On duty for the edge until ")
        for text in (
            "Waits for you · 1",
            "toy set lb1 fan on",
            "fair holds changes of the edge",
            "Changed outside Keyturn",
            "lb1: 1 value",
            "Dora Developer: toy set lb*",
        ):
            assert text in " ".join(message.words.split()), text
        shown = [one["text"]["text"] for one in message.buttons.values()]
        assert shown == ["Show runs", "Show drift", "Show freezes"]
        await chat.press("read-1", "U0OLGA", message=message)
        assert "1 value changed outside Keyturn" in chat.slack.whispers("U0OLGA")[-1].words
        # The card of what waits comes to the person on duty, with its buttons.
        assert any("approve" in one.buttons for one in chat.slack.seen_in("D0OLGA"))
        await _hand_over(chat)
        assert sum("On duty" in one.text for one in chat.slack.posted) == 1


async def _hand_over(chat: Chat) -> None:
    await chat.door.handovers.send_due()
    await chat.settle()


async def test_handover_that_slack_refuses_is_sent_again(
    harness: Harness, anyio_backend: str
) -> None:
    add_calendar(harness.policies.path)
    async with open_chat(harness) as chat:
        _set_shifts(harness, (-1, 500, "olga"))
        chat.slack.refuse("chat.postMessage", "internal_error")
        await _hand_over(chat)
        assert chat.slack.seen_in("D0OLGA") == []
        await _hand_over(chat)
        [message] = chat.slack.seen_in("D0OLGA")
        assert "Nothing is open." in message.words
        assert message.buttons == {}


async def test_handover_that_could_not_be_read_is_sent_later(
    harness: Harness, anyio_backend: str
) -> None:
    add_calendar(harness.policies.path)
    async with open_chat(harness) as chat:
        _set_shifts(harness, (-1, 500, "olga"))
        _rename_table(harness, "standing_grant", "moved")
        await _hand_over(chat)
        assert chat.slack.seen_in("D0OLGA") == []
        _rename_table(harness, "moved", "standing_grant")
        await _hand_over(chat)
        assert len(chat.slack.seen_in("D0OLGA")) == 1


def _rename_table(harness: Harness, old: str, new: str) -> None:
    with harness.database.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")


async def test_handover_command_shows_what_is_open_to_owners_only(chat: Chat) -> None:
    await chat.type("toy set lb1 lamp on because it is dark")
    await chat.type(f"approve 1 {chat.run().short_digest} at 2 hours", "U0OLGA")
    await chat.type("toy set lb1 fan on because it is hot")
    shown = await chat.read("handover", "U0OLGA")
    assert "Open in the edge and the web servers" in shown
    assert "Waits for you · 1" in shown
    assert "Starts later · 1" in shown
    assert "toy set lb1 lamp on – Starts at" in " ".join(shown.split())
    assert "you are not on duty" in (await chat.read("handover", "U0DORA")).lower()
