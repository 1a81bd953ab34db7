"""The handover names what is open of several features: drift, freezes and grants."""

import pytest

from tests.bot.duties import add_calendar
from tests.bot.features.drift.test_chat import dim_by_hand
from tests.bot.features.oncall.shifts import set_shifts
from tests.bot.features.oncall.test_handover import hand_over
from tests.bot.harness import Harness
from tests.bot.slack.chat import open_chat
from tests.bot.slack.conftest import anyio_backend, patient, toys

__all__ = ["anyio_backend", "patient", "toys"]
pytestmark = pytest.mark.anyio
FREEZE = (
    'freezes: [{name: fair, areas: [edge], from: "1999-01-01 00:00", until: "2199-01-01 00:00"}]'
)


async def test_person_who_comes_on_duty_gets_what_is_open_once(
    harness: Harness, anyio_backend: str
) -> None:
    add_calendar(harness.policies.path)
    async with open_chat(harness, default_channel="C0OPS") as chat:
        await dim_by_hand(chat)
        await chat.type("toy set lb1 fan on because it is hot")
        await chat.type("grant dora toy set lb* 5 an hour until 3h because the fair", "U0ADAM")
        (harness.policies.path / "freezes.yaml").write_text(FREEZE)
        set_shifts(harness, (-500, -5, "adam"), (-5, 500, "olga"))
        await hand_over(chat)
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
        await hand_over(chat)
        assert sum("On duty" in one.text for one in chat.slack.posted) == 1
