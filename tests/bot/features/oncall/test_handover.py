"""The handover: one message to the person who comes on duty, with what is open and its buttons."""

import pytest

from bot.features.oncall.handover import list_started_duties
from tests.bot.duties import add_calendar
from tests.bot.features.oncall.shifts import set_shifts
from tests.bot.harness import Harness
from tests.bot.slack.chat import Chat, open_chat

pytestmark = pytest.mark.anyio


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
    set_shifts(harness, *shifts)
    with harness.database.reading() as tx:
        found = list_started_duties(tx, harness.policies.get_policy())
    assert sorted(one.person for one in found) == people
    assert {(one.calendar, *one.areas) for one in found} <= {("edge", "edge")}


async def hand_over(chat: Chat) -> None:
    await chat.door.direct_notices.send_due()
    await chat.settle()


async def test_handover_that_slack_refuses_is_sent_again(
    harness: Harness, anyio_backend: str
) -> None:
    add_calendar(harness.policies.path)
    async with open_chat(harness) as chat:
        set_shifts(harness, (-1, 500, "olga"))
        chat.slack.refuse("chat.postMessage", "internal_error")
        await hand_over(chat)
        assert chat.slack.seen_in("D0OLGA") == []
        await hand_over(chat)
        [message] = chat.slack.seen_in("D0OLGA")
        assert "Nothing is open." in message.words
        assert message.buttons == {}


async def test_handover_that_could_not_be_read_is_sent_later(
    harness: Harness, anyio_backend: str
) -> None:
    add_calendar(harness.policies.path)
    async with open_chat(harness) as chat:
        set_shifts(harness, (-1, 500, "olga"))
        _rename_table(harness, "standing_grant", "moved")
        await hand_over(chat)
        assert chat.slack.seen_in("D0OLGA") == []
        _rename_table(harness, "moved", "standing_grant")
        await hand_over(chat)
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
