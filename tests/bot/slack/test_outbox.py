"""The outbox: cards and results reach Slack, with retries and leases, without delaying runs."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bot.db import outbox as db_outbox
from bot.model.run import State
from bot.slack import outbox
from bot.slack.run_facts import SlackRunViewBuilder
from tests.bot.harness import Harness
from tests.bot.slack import payloads
from tests.bot.slack.chat import PAGES, PENDING_BUTTONS, Chat, open_chat
from tests.policies import TEAM
from tests.toy import SetSwitch

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on"


def get_outbox_error(chat: Chat) -> str:
    with chat.harness.database.reading() as tx:
        return tx.sql.exec_driver_sql("SELECT error FROM outbox").scalar_one()


def make_deliveries_due(chat: Chat) -> None:
    """Let the time pass that the outbox wants to wait."""
    with chat.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE outbox SET next_attempt_at = 0")


@asynccontextmanager
async def running_outbox(chat: Chat):
    """Keep the outbox running, as the service does."""
    task = asyncio.create_task(chat.door.outbox.run_until_cancelled())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait for something real."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def test_card_goes_to_the_default_channel_when_the_bot_is_not_in_the_channel(
    harness: Harness,
):
    async with open_chat(harness, default_channel="C0MAIN") as chat:
        chat.slack.channels = {"C0MAIN"}
        await chat.type(LAMP_ON, channel="C0SECRET")
        [card] = chat.slack.seen_in("C0MAIN")
        [hint] = chat.slack.seen_in("D0DORA")
        assert "<#C0MAIN>" in hint.text
        assert "/invite @Keyturn" in hint.words
        await chat.press("approve", "U0OLGA", message=card)
        assert chat.run().state is State.SUCCEEDED
        assert len(chat.slack.seen_in("D0DORA")) == 1


async def test_requester_gets_the_card_and_an_invite_hint_without_a_channel(chat: Chat):
    await chat.type(LAMP_ON, channel="C0SECRET")
    [card] = chat.slack.seen_in("D0DORA")
    assert "<#C0SECRET>. Type /invite @Keyturn there" in card.words
    assert set(card.buttons) == PENDING_BUTTONS


async def test_no_changes_message_is_sent_directly_where_the_bot_is_not_in_the_channel(chat: Chat):
    await chat.type("toy set lb1 lamp off", channel="C0SECRET")
    [message] = chat.slack.posted
    assert message.channel == "D0DORA"
    assert message.text.startswith("Run 1 · No changes")


async def test_web_request_is_posted_in_the_default_channel(harness: Harness):
    async with open_chat(harness, default_channel="C0OPS") as chat:
        await asyncio.to_thread(harness.request, SetSwitch(host="lb1", name="lamp", value="on"))
        await chat.settle()
        assert chat.slack.card.channel == "C0OPS"
        assert "· on the web" in chat.slack.card.words


async def test_deleted_card_is_posted_again(chat: Chat):
    await chat.type(LAMP_ON)
    chat.slack.posted.clear()
    await chat.type("approve 1 " + chat.run().short_digest, "U0OLGA")
    cards = [one for one in chat.slack.posted if not one.thread]
    assert [card.text.split(":")[0] for card in cards] == ["Run 1 · Succeeded"]


async def test_button_of_a_replaced_card_decides_nothing(chat: Chat):
    await chat.type("toy set all lb1 on")
    old = chat.slack.card
    chat.slack.posted.clear()
    with chat.harness.database.transaction() as tx:
        db_outbox.announce_run(tx, 1)
        tx.sql.exec_driver_sql("UPDATE slack_message SET digest = ''")
    await chat.settle()
    await chat.press("approve", "U0OLGA", message=old)
    assert chat.run().state is State.PENDING
    await chat.press("approve", "U0OLGA")
    assert chat.run().state is State.SUCCEEDED


async def test_card_waits_for_retry_after_of_a_slack_rate_limit(chat: Chat):
    chat.slack.refuse("chat.postMessage", "ratelimited", status=429, retry_after=17)
    await chat.type(LAMP_ON)
    assert chat.slack.posted == []
    with chat.harness.database.reading() as tx:
        wait = tx.sql.exec_driver_sql("SELECT next_attempt_at FROM outbox").scalar_one() - tx.now
    assert 15_000_000 < wait < 22_000_000
    await chat.settle()
    assert [call for call, _ in chat.slack.calls].count("chat.postMessage") == 1
    make_deliveries_due(chat)
    await chat.settle()
    assert set(chat.slack.card.buttons) == PENDING_BUTTONS


@pytest.mark.parametrize("error", ["internal_error", "fatal_error", "invalid_auth"])
async def test_slack_error_does_not_fail_the_run_and_the_card_is_retried(chat: Chat, error: str):
    chat.slack.refuse("chat.postMessage", error)
    await chat.type(LAMP_ON)
    assert get_outbox_error(chat) == error
    assert chat.slack.posted == []
    await chat.type("approve 1 " + chat.run().short_digest, "U0OLGA")
    assert chat.run().state is State.SUCCEEDED
    make_deliveries_due(chat)
    await chat.settle()
    assert chat.slack.posted[0].text.startswith("Run 1 · Succeeded")


async def test_outbox_retry_delay_grows_with_each_failure(chat: Chat):
    waits: list[int] = []
    for _ in range(4):
        chat.slack.refuse("chat.postMessage", "internal_error")
    await chat.type(LAMP_ON)
    for _ in range(4):
        with chat.harness.database.reading() as tx:
            due = tx.sql.exec_driver_sql("SELECT next_attempt_at FROM outbox").scalar_one()
            waits.append(due - tx.now)
        make_deliveries_due(chat)
        await chat.settle()
    assert waits[0] < waits[1] < waits[2] < waits[3]


async def test_card_is_posted_as_text_when_slack_refuses_its_blocks(chat: Chat):
    chat.slack.refuse("chat.postMessage", "invalid_blocks")
    await chat.type(LAMP_ON)
    assert chat.slack.card.blocks == []
    assert chat.slack.card.text.startswith("Run 1 · Needs approval")


async def test_card_is_retried_after_an_html_error_page_of_slack(chat: Chat):
    page = web.Response(status=502, text="<html>bad gateway</html>", content_type="text/html")
    chat.slack.refusals["chat.postMessage"] = [page]
    await chat.type(LAMP_ON)
    assert chat.slack.posted == []
    make_deliveries_due(chat)
    await chat.settle()
    assert chat.slack.card.text.startswith("Run 1 · Needs approval")


async def test_unchanged_card_is_not_sent_again(chat: Chat):
    await chat.type(LAMP_ON)
    calls = len(chat.slack.calls)
    with chat.harness.database.transaction() as tx:
        db_outbox.announce_run(tx, 1)
    await chat.settle()
    assert len(chat.slack.calls) == calls


async def test_two_outbox_workers_post_a_card_once(chat: Chat):
    async with open_chat(chat.harness) as other:
        await chat.send(payloads.slash(LAMP_ON))
        await asyncio.to_thread(chat.harness.run_queued_work)
        both = (chat.door.outbox, other.door.outbox)
        await asyncio.gather(*(outbox.deliver_due() for outbox in both for _ in range(5)))
        assert len(chat.slack.posted) + len(other.slack.posted) == 1


async def test_outbox_claim_of_a_dead_worker_expires(chat: Chat):
    await chat.send(payloads.slash(LAMP_ON))
    await asyncio.to_thread(chat.harness.run_queued_work)
    with chat.harness.database.transaction() as tx:
        [item] = db_outbox.list_pending_updates(tx)
        assert db_outbox.claim_update(tx, item, sender="one", seconds=60)
        assert not db_outbox.claim_update(tx, item, sender="another", seconds=60)
    await chat.settle()
    assert chat.slack.posted == []
    make_deliveries_due(chat)
    await chat.settle()
    assert chat.slack.card.text.startswith("Run 1 · Needs approval")


async def test_message_claimed_by_a_dead_worker_is_sent_within_fifteen_seconds(chat: Chat):
    """It died while Slack took its time."""
    async with open_chat(chat.harness) as dead:
        await chat.send(payloads.slash(LAMP_ON))
        await asyncio.to_thread(chat.harness.run_queued_work)
        dead.slack.slowly = 1
        dying = asyncio.create_task(dead.door.outbox.deliver_due())
        await until(lambda: dead.slack.calls)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
    await chat.settle()
    assert chat.slack.posted == []
    with chat.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE outbox SET next_attempt_at = next_attempt_at - 15000000")
    await chat.settle()
    assert chat.slack.card.text.startswith("Run 1 · Needs approval")


async def test_message_posted_by_a_dead_worker_is_not_posted_again(chat: Chat):
    await chat.send(payloads.slash(LAMP_ON))
    await asyncio.to_thread(chat.harness.run_queued_work)
    chat.slack.slowly = 0.3
    dying = asyncio.create_task(chat.door.outbox.deliver_due())
    await until(lambda: any(call == "chat.postMessage" for call, _ in chat.slack.calls))
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    # Slack has it all the same.
    await until(lambda: chat.slack.posted)
    with chat.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE outbox SET next_attempt_at = next_attempt_at - 15000000")
    await chat.settle()
    assert set(chat.slack.card.buttons) == PENDING_BUTTONS
    with chat.harness.database.reading() as tx:
        assert db_outbox.list_messages(tx, 1)["card"].ts == chat.slack.card.ts


async def test_slow_outbox_worker_renews_its_lease(chat: Chat, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outbox, "_LEASE_SECONDS", 1.0)
    async with open_chat(chat.harness) as other:
        await chat.send(payloads.slash(LAMP_ON))
        await asyncio.to_thread(chat.harness.run_queued_work)
        chat.slack.slowly = 2.5
        telling = asyncio.create_task(chat.door.outbox.deliver_due())
        await until(lambda: any(call == "chat.postMessage" for call, _ in chat.slack.calls))
        while not telling.done():
            await other.door.outbox.deliver_due()
            await asyncio.wait([telling], timeout=0.05)
        await telling
        assert other.slack.posted == []
    assert chat.slack.card.text.startswith("Run 1 · Needs approval")


async def test_outbox_worker_with_an_expired_lease_cannot_change_the_delivery(chat: Chat):
    await chat.send(payloads.slash(LAMP_ON))
    await asyncio.to_thread(chat.harness.run_queued_work)
    with chat.harness.database.transaction() as tx:
        [item] = db_outbox.list_pending_updates(tx)
        assert db_outbox.claim_update(tx, item, sender="late", seconds=-1)
        assert db_outbox.claim_update(tx, item, sender="new", seconds=60)
        db_outbox.mark_delivered(tx, item, sender="late")
        db_outbox.postpone_update(tx, item, seconds=-1, why="late", sender="late")
        db_outbox.renew_claim(tx, item, sender="late", seconds=-1)
        assert db_outbox.list_pending_updates(tx) == []
        assert db_outbox.has_pending_update(tx, item.run)
        db_outbox.mark_delivered(tx, item, sender="new")
        assert not db_outbox.has_pending_update(tx, item.run)


async def test_outbox_worker_releases_unsent_messages_at_shutdown(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outbox, "_GRACE_SECONDS", 0.1)
    chat.slack.slowly = 1
    async with running_outbox(chat):
        await chat.send(payloads.slash(LAMP_ON))
        await asyncio.to_thread(chat.harness.run_queued_work)
        chat.door.outbox.wake_up()
        await until(lambda: any(call == "chat.postMessage" for call, _ in chat.slack.calls))
    async with open_chat(chat.harness) as other:
        await other.door.outbox.deliver_due()
        assert other.slack.card.text.startswith("Run 1 · Needs approval")


async def test_slow_planning_is_shown_and_updated_to_the_card(chat: Chat):
    async with running_outbox(chat):
        answer = await chat.send(payloads.slash(LAMP_ON))
        assert answer.body == b""
        await until(lambda: chat.slack.posted)
        assert chat.slack.card.text.startswith("Run 1 · Planning: toy set lb1 lamp on")
        await asyncio.to_thread(chat.harness.run_queued_work)
        chat.door.outbox.wake_up()
        await until(lambda: chat.slack.card.buttons)
        assert chat.slack.card.updates == 1


async def test_outbox_sends_at_once_when_woken(chat: Chat):
    async with running_outbox(chat):
        await until(lambda: chat.door.outbox.is_ready)
        await chat.send(payloads.slash(LAMP_ON))
        await asyncio.to_thread(chat.harness.run_queued_work)
        began = asyncio.get_running_loop().time()
        # From another thread, as every commit does.
        await asyncio.to_thread(chat.door.outbox.wake_up)
        await until(lambda: chat.slack.posted)
        assert asyncio.get_running_loop().time() - began < 0.5


async def test_card_progress_is_updated_at_most_once_a_second(harness: Harness):
    now = [100.0]
    async with open_chat(harness, clock=lambda: now[0]) as chat:
        loop, updates = asyncio.get_running_loop(), list[int]()

        def between_steps(_host: str, _words: str) -> None:
            now[0] += 0.6
            asyncio.run_coroutine_threadsafe(chat.door.outbox.deliver_due(), loop).result(10)
            updates.append(chat.slack.card.updates)

        harness.fleet.hosts["lb1"] = dict.fromkeys("abcd", "off")
        harness.fleet.before_send = between_steps
        await chat.type("toy set all lb1 on")
        await chat.press("approve", "U0OLGA")
        assert updates == [0, 1, 1, 2]
        assert chat.slack.card.text.startswith("Run 1 · Succeeded")


async def test_messages_disable_slack_parsing_name_links_and_unfurling(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("approve", "U0STAN")
    await chat.press("approve", "U0OLGA")
    calls = [(call, args) for call, args in chat.slack.calls if call.startswith("chat.")]
    assert {call for call, _ in calls} == {"chat.postMessage", "chat.update", "chat.postEphemeral"}
    for call, args in calls:
        assert (args["parse"], args["link_names"]) == ("none", False)
        if call == "chat.postMessage":
            assert (args["unfurl_links"], args["unfurl_media"]) == (False, False)


async def test_card_is_built_without_a_valid_policy(chat: Chat):
    await chat.type(LAMP_ON)
    (chat.harness.policies.path / "people.yaml").unlink()
    run_views = SlackRunViewBuilder(chat.harness.policies, team=TEAM, base_url=PAGES)
    with chat.harness.database.reading() as tx:
        run_view = run_views.build_slack_run_view(tx, 1)
    assert (run_view.get_person_name("dora"), run_view.area_title, run_view.requester) == (
        "dora",
        "edge",
        "U0DORA",
    )


async def test_result_shows_each_step_with_its_output(chat: Chat):
    await chat.type("toy set all lb1 on")
    await chat.press("approve", "U0OLGA")
    [result] = [one for one in chat.slack.posted if one.thread]
    assert "1. Set fan: output of lb1" in result.words


async def test_message_in_delivery_at_shutdown_is_posted_and_recorded(chat: Chat):
    await chat.send(payloads.slash(LAMP_ON))
    await asyncio.to_thread(chat.harness.run_queued_work)
    chat.slack.slowly = 0.3
    async with running_outbox(chat):
        await until(lambda: any(call == "chat.postMessage" for call, _ in chat.slack.calls))
    with chat.harness.database.reading() as tx:
        assert db_outbox.list_pending_updates(tx) == []
        assert db_outbox.list_messages(tx, 1)["card"].ts == chat.slack.card.ts


async def test_waiting_card_is_posted_with_the_state_at_the_time_of_posting(chat: Chat):
    """And by whoever has a place free: nobody keeps what they cannot tell yet."""
    for _ in range(9):
        await chat.send(payloads.slash(LAMP_ON))
        await asyncio.to_thread(chat.harness.run_queued_work)
    chat.slack.slowly = 0.5
    async with running_outbox(chat):
        await until(lambda: len(chat.slack.calls) >= 8)
        await asyncio.to_thread(chat.harness.service.deny_run, 9, person="olga", reason="not now")
        await until(lambda: len(_texts_posted(chat)) >= 9)
    assert [text.partition(":")[0] for text in _texts_posted(chat)] == [
        *[f"Run {number} · Needs approval" for number in range(1, 9)],
        "Run 9 · Denied",
    ]


def _texts_posted(chat: Chat) -> list[str]:
    return [args["text"] for call, args in chat.slack.calls if call.startswith("chat.post")]


@pytest.mark.parametrize("turns", range(8))
async def test_outbox_stops_when_cancelled_just_after_being_woken(chat: Chat, turns: int):
    task = asyncio.create_task(chat.door.outbox.run_until_cancelled())
    await until(lambda: chat.door.outbox.is_ready)
    chat.door.outbox.wake_up()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=5)
    assert task in done


async def test_card_of_a_long_step_shows_its_duration(harness: Harness):
    now = [100.0]
    async with open_chat(harness, clock=lambda: now[0]) as chat:
        loop, texts = asyncio.get_running_loop(), list[str]()

        def two_minutes_later(_host: str, _words: str) -> None:
            with harness.database.transaction() as tx:
                tx.sql.exec_driver_sql("UPDATE run SET started_at = started_at - 120000000")
            now[0] += 31
            asyncio.run_coroutine_threadsafe(chat.door.outbox.deliver_due(), loop).result(10)
            texts.append(chat.slack.card.words)

        harness.fleet.before_send = two_minutes_later
        await chat.type(LAMP_ON)
        await chat.press("approve", "U0OLGA")
        assert "Step 1 of 1 on lb1, for 2 min" in texts[0]


async def test_card_of_a_fan_out_counts_finished_hosts(harness: Harness):
    now = [100.0]
    async with open_chat(harness, clock=lambda: now[0]) as chat:
        loop, texts = asyncio.get_running_loop(), list[str]()

        def a_while_later(_host: str, _words: str) -> None:
            now[0] += 31
            asyncio.run_coroutine_threadsafe(chat.door.outbox.deliver_due(), loop).result(10)
            texts.append(chat.slack.card.text)

        harness.fleet.before_send = a_while_later
        await chat.type("toy set lb* lamp on")
        await chat.press("approve", "U0OLGA")
        assert "0 of 2 hosts done, running on lb1" in texts[0]
        assert "1 of 2 hosts done, running on lb2" in texts[1]


async def test_long_output_is_uploaded_as_a_file_to_the_thread(chat: Chat):
    chat.harness.fleet.hosts["lb1"] = dict.fromkeys("abcdefgh", "off")
    await chat.type("toy set all lb1 on")
    await chat.press("approve", "U0OLGA")
    [result] = [one for one in chat.slack.posted if one.thread]
    assert "The full output is in the file below" in result.words
    assert chat.slack.files == [("C0OPS", chat.slack.card.ts)]
    [content] = chat.slack.uploaded
    assert content.count("output of lb1") == 8
    assert "h is on now" in content


async def test_refused_file_upload_does_not_block_the_outbox(chat: Chat):
    chat.harness.fleet.hosts["lb1"] = dict.fromkeys("abcdefgh", "off")
    chat.slack.refuse("files.getUploadURLExternal", "missing_scope")
    await chat.type("toy set all lb1 on")
    await chat.press("approve", "U0OLGA")
    assert chat.slack.files == []
    with chat.harness.database.reading() as tx:
        assert db_outbox.list_pending_updates(tx) == []
