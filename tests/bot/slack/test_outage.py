"""Outages and rate limits of Slack delay no run and lose no message."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from sqlalchemy import update

from bot.db import outbox, tables
from bot.model.run import Run, State
from bot.slack.outbox import ChannelRateLimit
from tests.bot.harness import Harness
from tests.bot.slack.chat import Chat, open_chat
from tests.toy import SetSwitch

pytestmark = pytest.mark.anyio
OPS = "C0OPS"


@dataclass
class Clock:
    """The outbox's clock, and the database's as far as news is concerned, moved by hand."""

    chat: Chat | None = None
    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def passes(self, seconds: float) -> None:
        assert self.chat is not None
        self.seconds += seconds
        with self.chat.harness.database.transaction() as tx:
            earlier = tables.outbox.c.next_attempt_at - round(seconds * 1_000_000)
            tx.sql.execute(update(tables.outbox).values(next_attempt_at=earlier))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def chat(harness: Harness, clock: Clock, anyio_backend: str) -> AsyncIterator[Chat]:
    async with open_chat(harness, default_channel=OPS, clock=clock) as chat:
        clock.chat = chat
        yield chat


def request_lamp(chat: Chat, value: str) -> Run:
    return chat.harness.request(SetSwitch(host="lb1", name="lamp", value=value))


def count_undelivered(chat: Chat) -> int:
    with chat.harness.database.reading() as tx:
        return tx.sql.exec_driver_sql("SELECT count(*) FROM outbox").scalar_one()


async def request_in_thread(chat: Chat, value: str) -> Run:
    return await asyncio.to_thread(request_lamp, chat, value)


async def request_over_time(chat: Chat, count: int) -> None:
    """Request several changes, so far apart that each has a card of its own."""
    for _ in range(count):
        await request_in_thread(chat, "on")
    with chat.harness.database.transaction() as tx:
        earlier = tables.run.c.requested_at - 30_000_000 * tables.run.c.id
        tx.sql.execute(update(tables.run).values(requested_at=earlier))


@pytest.mark.parametrize("how", ["it answers 503", "nobody is there"])
async def test_slack_outage_of_six_hours_delays_no_run_and_loses_no_result(
    chat: Chat, clock: Clock, how: str
):
    """Nobody is there: connections break off."""
    before = await request_in_thread(chat, "on")
    await chat.settle()
    chat.slack.away = how
    during: list[Run] = []
    for turn in range(3):
        run = await request_in_thread(chat, "off" if turn % 2 else "on")
        # Decided on the web meanwhile, it is done at once.
        during.append(await asyncio.to_thread(chat.harness.approve, run))
        assert during[-1].state in {State.SUCCEEDED, State.STALE}
        for _ in range(2):
            await chat.door.outbox.deliver_due()
            clock.passes(3600)
    assert count_undelivered(chat) == 3
    chat.slack.away = ""
    clock.passes(1200)
    while count_undelivered(chat):
        await chat.door.outbox.deliver_due()
        clock.passes(1.0)
    shown = [one for one in chat.slack.seen_in(OPS) if not one.thread]
    for run in (before, *during):
        [card] = [one for one in shown if f"Run {run.id} " in one.words]
        ends = {State.SUCCEEDED: "Succeeded", State.STALE: "Stale", State.PENDING: "Needs"}
        assert card.text.startswith(f"Run {run.id} · {ends[chat.run(run.id).state]}"), card.text


@pytest.mark.parametrize("how", ["it answers 503", "nobody is there"])
async def test_first_card_is_posted_within_two_seconds_of_the_end_of_an_outage(
    chat: Chat, clock: Clock, how: str
):
    chat.slack.away = how
    # The library waits a second by itself before it gives a connection up.
    rounds = 60 if how == "it answers 503" else 4
    for _ in range(5):
        await request_in_thread(chat, "on")
    for _ in range(rounds):
        await chat.door.outbox.deliver_due()
        clock.passes(1.0)
    assert chat.slack.posted == []
    # One call a second looks whether Slack is back, not one for each message.
    calls = len(chat.slack.calls)
    for _ in range(rounds // 6):
        await chat.door.outbox.deliver_due()
        clock.passes(1.0)
    assert how == "nobody is there" or len(chat.slack.calls) - calls <= 15
    chat.slack.away = ""
    clock.passes(2.0)
    await chat.door.outbox.deliver_due()
    assert chat.slack.seen_in(OPS) != []
    # The others follow at the pace of their channel.
    for _ in range(5):
        clock.passes(1.0)
        await chat.door.outbox.deliver_due()
    assert len(chat.slack.seen_in(OPS)) == 5
    assert count_undelivered(chat) == 0


async def test_end_of_an_outage_does_not_shorten_the_wait_that_slack_asked_for(
    chat: Chat, clock: Clock
):
    await request_in_thread(chat, "on")
    chat.slack.refuse("chat.postMessage", "ratelimited", status=429, retry_after=30)
    await chat.door.outbox.deliver_due()
    chat.slack.refuse("chat.postMessage", "internal_error")
    await request_in_thread(chat, "on")
    await chat.door.outbox.deliver_due()
    for _ in range(5):
        clock.passes(2.0)
        await chat.door.outbox.deliver_due()
    assert [one.text.split(" · ")[0] for one in chat.slack.posted] == ["Run 2"]


async def test_ten_thousand_updates_become_one_message_per_run_within_the_rate_limit(
    chat: Chat, clock: Clock
):
    await request_over_time(chat, 30)
    with chat.harness.database.transaction() as tx:
        for item in outbox.list_pending_updates(tx) * 350:
            outbox.announce_run(tx, item.run)
    chat.slack.refuse("chat.postMessage", "ratelimited", status=429, retry_after=7)
    numbers: list[int] = []
    while count_undelivered(chat):
        so_far = len(chat.slack.posted)
        await chat.door.outbox.deliver_due()
        numbers.append(len(chat.slack.posted) - so_far)
        clock.passes(1.0)
        assert len(numbers) < 100
    cards = Counter(one.words.split("Run ")[1].split()[0] for one in chat.slack.posted)
    assert set(cards.values()) == {1}
    assert len(cards) == 30
    assert numbers[0] <= 10
    assert all(count <= 2 for count in numbers[1:]), numbers


async def test_rate_limited_message_waits_for_retry_after_and_a_margin(chat: Chat, clock: Clock):
    await request_in_thread(chat, "on")
    chat.slack.refuse("chat.postMessage", "ratelimited", status=429, retry_after=30)
    await chat.door.outbox.deliver_due()
    clock.passes(29)
    await chat.door.outbox.deliver_due()
    assert chat.slack.posted == []
    clock.passes(30 / 4 + 1)
    await chat.door.outbox.deliver_due()
    assert chat.slack.card.channel == OPS


def test_channel_rate_limit_is_a_burst_of_ten_then_one_per_second():
    now = [0.0]
    pace = ChannelRateLimit(lambda: now[0])
    assert [pace.reserve_turn(OPS) for _ in range(13)] == [0.0] * 10 + [1.0, 2.0, 3.0]
    assert pace.reserve_turn("C0OTHER") == 0.0
    now[0] = 60.0
    assert pace.reserve_turn(OPS) == 0.0


def test_channel_rate_limit_ignores_an_empty_channel():
    pace = ChannelRateLimit(lambda: 0.0)
    assert {pace.reserve_turn("") for _ in range(100)} == {0.0}


async def test_without_the_channel_rate_limit_all_messages_are_posted_at_once(
    chat: Chat, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    def at_once(_self: ChannelRateLimit, _channel: str) -> float:
        return 0.0

    monkeypatch.setattr(ChannelRateLimit, "reserve_turn", at_once)
    await request_over_time(chat, 15)
    await chat.door.outbox.deliver_due()
    assert len(chat.slack.posted) == 15


def test_outbox_has_one_row_per_run_for_repeated_announcements(harness: Harness):
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    for _ in range(20):
        with harness.database.transaction() as tx:
            outbox.announce_run(tx, run.id)
    with harness.database.reading() as tx:
        assert [one.run for one in outbox.list_pending_updates(tx)] == [run.id]


async def test_old_runs_do_not_delay_new_messages_when_slack_is_connected(chat: Chat):
    for _ in range(16):
        run = await request_in_thread(chat, "on")
        await asyncio.to_thread(
            chat.harness.service.deny_run, run.id, person="olga", reason="no need"
        )
    with chat.harness.database.transaction() as tx:
        long_ago = tx.now - 365 * 86_400_000_000
        moved = {
            "requested_at": long_ago,
            "started_at": long_ago,
            "ended_at": long_ago + 1_000_000,
        }
        tx.sql.execute(update(tables.run).values(**moved))
    await request_in_thread(chat, "on")
    await chat.settle()
    posted = [args for call, args in chat.slack.calls if call.startswith("chat.post")]
    assert [args["text"].partition(":")[0] for args in posted] == ["Run 17 · Needs approval"]
    assert count_undelivered(chat) == 0
