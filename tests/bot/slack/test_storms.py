"""More than ten requests of one kind within a minute share a card; urgent ones overtake."""

import asyncio
from collections import Counter

import pytest

from bot.db import outbox, runs
from bot.model.run import State
from bot.model.times import MINUTE
from tests.bot.authenticator_app import enrol_and_step_up
from tests.bot.slack.chat import Chat, open_chat
from tests.bot.slack.json_walk import list_mentions
from tests.bot.slack.web_api import Posted
from tests.toy import SetSwitch

pytestmark = pytest.mark.anyio
OPS = "C0OPS"


async def request_many(chat: Chat, count: int, host: str = "lb1", person: str = "dora") -> None:
    """Request the same from the web, which gives no turn to chat meanwhile."""
    for _ in range(count):
        runbook = SetSwitch(host=host, name="lamp", value="on")
        await asyncio.to_thread(chat.harness.request, runbook, person)


async def settle_all(chat: Chat) -> None:
    """Deliver until nothing is left, without the waits between two updates of a card."""
    for _ in range(20):
        with chat.harness.database.transaction() as tx:
            tx.sql.exec_driver_sql("UPDATE outbox SET next_attempt_at = 0")
        chat.door.outbox._sent_at.clear()  # pyright: ignore[reportPrivateUsage] - a second passes
        await chat.settle()
        with chat.harness.database.reading() as tx:
            if not outbox.list_pending_updates(tx):
                return
    raise AssertionError("the outbox does not come to rest")


def list_rows(card: Posted) -> list[tuple[str, ...]]:
    """Return the rows of the card's table, by their numbers."""
    [table] = [block for block in card.blocks if block["type"] == "table"]
    rows = [tuple(cell["text"] for cell in row) for row in table["rows"][1:]]
    return sorted(rows, key=lambda row: int(row[0]))


def list_cards(chat: Chat) -> list[Posted]:
    return [one for one in chat.slack.seen_in(OPS) if not one.thread and not one.seen_by]


async def test_requests_of_a_storm_share_a_card_and_each_is_decided_by_itself(chat: Chat):
    async with open_chat(chat.harness, default_channel=OPS, clock=lambda: 0.0) as chat:
        await request_many(chat, 13)
        await settle_all(chat)
        [card] = list_cards(chat)
        assert card.text == "Runs 1–13 · 13 requests: toy set – Needs approval: 13"
        assert list_rows(card) == [
            (str(number), "lb1", "🟡 Needs approval") for number in range(1, 14)
        ]
        assert set(card.buttons) == {"show-each"}
        mentions = Counter(user for one in chat.slack.posted for user in list_mentions(one.blocks))
        assert mentions == {"U0OLGA": 1, "U0ADAM": 1}

        # A second process, or the first one after a restart, posts nothing again.
        seen = len(chat.slack.posted)
        with chat.harness.database.transaction() as tx:
            for number in range(1, 14):
                outbox.announce_run(tx, number)
        await settle_all(chat)
        assert len(chat.slack.posted) == seen

        await chat.press("show-each", "U0OLGA", message=card)
        await settle_all(chat)
        copies = {one.text.split(" · ")[0]: one for one in chat.slack.seen_in("D0OLGA")}
        assert set(copies) == {f"Run {number}" for number in range(1, 11)}
        [answer] = chat.slack.whispers("U0OLGA")
        assert "You get 10 cards" in answer.text
        assert "the next of 3 more" in answer.text
        await chat.press("show-each", "U0OLGA", message=card)
        await settle_all(chat)
        assert len(chat.slack.seen_in("D0OLGA")) == 13

        # The card has no button that decides, also if somebody makes one up.
        value = f"3:{chat.run(3).short_digest}"
        await chat.press("approve", "U0OLGA", message=card, value=value)
        assert chat.run(3).state is State.PENDING
        await chat.press("approve", "U0OLGA", message=copies["Run 3"])
        await settle_all(chat)
        states = [chat.run(number).state for number in range(1, 14)]
        assert states == [State.PENDING] * 2 + [State.SUCCEEDED] + [State.PENDING] * 10
        [card] = list_cards(chat)
        assert list_rows(card)[2] == ("3", "lb1", "🟢 Succeeded")
        [result] = [one for one in chat.slack.seen_in(OPS) if one.text.startswith("Run 3 ·")]
        assert result.thread == card.ts
        assert not chat.slack.seen_in("D0ADAM")


async def test_ten_requests_of_one_kind_have_cards_of_their_own(chat: Chat):
    async with open_chat(chat.harness, default_channel=OPS, clock=lambda: 0.0) as chat:
        await request_many(chat, 10)
        await settle_all(chat)
        assert [set(one.buttons) & {"approve", "show-each"} for one in list_cards(chat)] == [
            {"approve"}
        ] * 10


async def test_urgent_request_overtakes_a_storm_with_a_card_of_its_own(chat: Chat):
    async with open_chat(chat.harness, default_channel=OPS, clock=lambda: 0.0) as chat:
        chat.harness.fleet.hosts["web1"] = {"lamp": "off"}
        await request_many(chat, 31, "web1", "adam")
        run = chat.run(31)
        app = enrol_and_step_up(chat.harness, "adam")
        service = chat.harness.service.break_glass
        why = "all customers see an error page"
        service.request_break_glass(run.id, person="adam", reason=why)
        digest = chat.run(run.id).digest
        service.activate_break_glass(
            run.id, person="adam", session=app.session, digest=digest, reason=why
        )
        with chat.harness.database.reading() as tx:
            assert outbox.list_pending_updates(tx)[0].run == run.id
        await settle_all(chat)
        cards = {one.text.split(" · ")[0] for one in list_cards(chat)}
        assert f"Run {run.id}" in cards
        assert "Runs 1–30" in cards
        first = next(one for one in chat.slack.posted if not one.thread)
        assert first.text.startswith(f"Run {run.id} ")


async def test_shared_card_of_a_dead_worker_is_found_and_its_approvers_reminded_once(chat: Chat):
    async with open_chat(chat.harness, default_channel=OPS, clock=lambda: 0.0) as chat:
        await request_many(chat, 12)
        chat.slack.slowly = 0.3
        dying = asyncio.create_task(chat.door.outbox.deliver_due())
        async with asyncio.timeout(10):
            while not any(call == "chat.postMessage" for call, _ in chat.slack.calls):
                await asyncio.sleep(0.005)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        async with asyncio.timeout(10):
            while not chat.slack.posted:
                await asyncio.sleep(0.005)
        chat.slack.slowly = 0.0
        await settle_all(chat)
        [card] = list_cards(chat)
        assert len(list_rows(card)) == 12

        with chat.harness.database.transaction() as tx:
            for number in range(1, 13):
                run = runs.lock_run(tx, number)
                runs.amend_run(tx, run, pending_since=tx.now - 31 * MINUTE)
        chat.harness.service.advancer.remind_approvers()
        await settle_all(chat)
        mentions = Counter(user for one in chat.slack.posted for user in list_mentions(one.blocks))
        assert mentions == {"U0OLGA": 2, "U0ADAM": 2}
        assert {one.thread for one in chat.slack.posted} == {"", card.ts}
