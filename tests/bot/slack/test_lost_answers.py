"""Slack posts a message and its response is lost: the message is not posted twice."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.model.run import State
from bot.slack import client
from bot.slack.blocks import Message, rich_text, rich_text_section, text_element
from bot.slack.client import build_named_blocks, has_message_name, with_message_name
from tests.bot.slack import payloads
from tests.bot.slack.chat import PENDING_BUTTONS, Chat
from tests.bot.slack.sample_views import build_run_view
from tests.bot.slack.test_outbox import LAMP_ON, make_deliveries_due

pytestmark = pytest.mark.anyio
HELLO = Message("Hello", [rich_text(rich_text_section(text_element("Hello")))])


async def retry_deliveries(chat: Chat, times: int = 5) -> None:
    for _ in range(times):
        make_deliveries_due(chat)
        await chat.settle()


def count_cards(chat: Chat) -> int:
    return len([one for one in chat.slack.posted if not one.thread and not one.seen_by])


async def test_card_whose_post_response_was_lost_is_found_in_the_channel(chat: Chat):
    chat.slack.unheard = 1
    await chat.type(LAMP_ON)
    await retry_deliveries(chat)
    assert chat.slack.card.buttons.keys() == PENDING_BUTTONS
    await chat.press("approve", "U0OLGA")
    assert chat.run().state is State.SUCCEEDED
    assert chat.slack.card.text.startswith("Run 1 · Succeeded")


async def test_card_with_a_lost_post_response_is_found_among_other_messages(chat: Chat):
    chat.slack.unheard = 1
    await chat.type(LAMP_ON)
    ours = chat.slack.card
    others = AsyncWebClient("xoxb-2", chat.slack.url)
    for turn in range(5):
        await others.chat_postMessage(
            channel="C0OPS", text=f"{turn}", blocks=build_named_blocks(HELLO)
        )
    await retry_deliveries(chat)
    assert count_cards(chat) == 6
    await chat.press("approve", "U0OLGA", message=ours)
    assert ours.text.startswith("Run 1 · Succeeded")


async def test_thread_reply_whose_post_response_was_lost_is_posted_once(chat: Chat):
    await chat.type(LAMP_ON)
    chat.slack.unheard = 1
    await chat.press("approve", "U0OLGA")
    await retry_deliveries(chat)
    assert [one.text.split(":")[0] for one in chat.slack.posted if one.thread] == [
        "Run 1 · Succeeded"
    ]


async def test_direct_message_with_lost_responses_is_sent_once(chat: Chat):
    chat.slack.unheard = 2
    await chat.type("toy set lb1 lamp off")
    await retry_deliveries(chat)
    assert Counter(one.channel for one in chat.slack.posted) == {"C0OPS": 1, "D0DORA": 1}


@pytest.mark.parametrize("why", ["we may not look", "we do not look"])
async def test_without_the_search_for_the_message_each_retry_posts_another_card(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, why: str
):
    chat.slack.unheard, chat.slack.may_look = 3, why != "we may not look"
    if why == "we do not look":
        monkeypatch.setattr(client, "has_message_name", _never)
    await chat.type(LAMP_ON)
    await retry_deliveries(chat)
    assert count_cards(chat) == 4


def _never(_said: Mapping[str, Any], _name: str) -> bool:
    return False


@pytest.mark.parametrize("action", ["approve", "deny"])
async def test_duplicate_card_loses_its_buttons_when_clicked(chat: Chat, action: str):
    """The answer to its post was lost, and we may not look for it."""
    chat.slack.unheard, chat.slack.may_look = 1, False
    await chat.type(LAMP_ON)
    await retry_deliveries(chat)
    orphan, card = chat.slack.posted
    await chat.press(action, "U0OLGA", message=orphan)
    assert chat.run().state is State.PENDING
    assert orphan.buttons == {}
    assert orphan.text.startswith("Outdated: This card of run 1 is outdated")
    assert "/keyturn run 1" in orphan.words
    assert "This card of run 1 is outdated" in chat.slack.whispers("U0OLGA")[0].text
    assert set(card.buttons) == PENDING_BUTTONS
    await chat.press("approve", "U0OLGA", message=card)
    assert chat.run().state is State.SUCCEEDED


async def test_click_on_a_card_still_being_posted_is_refused_and_keeps_its_buttons(chat: Chat):
    """Slack has shown it to people before it has told us so."""
    chat.slack.unheard, chat.slack.may_look = 1, False
    await chat.type(LAMP_ON)
    [card] = chat.slack.posted
    answer = await chat.send(
        payloads.interaction(
            payloads.click(
                "approve",
                card.buttons["approve"]["value"],
                "U0OLGA",
                channel=card.channel,
                ts=card.ts,
            )
        )
    )
    await chat.door.close_listeners()
    assert answer.status == 200
    assert chat.run().state is State.PENDING
    assert set(card.buttons) == PENDING_BUTTONS
    assert "try again in a few seconds" in chat.slack.whispers("U0OLGA")[0].text


async def test_duplicate_card_keeps_its_buttons_when_an_unknown_account_clicks(chat: Chat):
    chat.slack.unheard, chat.slack.may_look = 1, False
    await chat.type(LAMP_ON)
    await retry_deliveries(chat)
    await chat.press("approve", "U0NOBODY", message=chat.slack.posted[0])
    assert set(chat.slack.posted[0].buttons) == PENDING_BUTTONS


async def test_message_posted_at_the_first_attempt_is_not_searched_for(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("approve", "U0OLGA")
    assert not [call for call, _ in chat.slack.calls if call.startswith("conversations.")]


async def test_search_for_a_lost_card_waits_after_a_slack_rate_limit(chat: Chat):
    chat.slack.unheard = 1
    chat.slack.refuse("conversations.history", "ratelimited", status=429, retry_after=9)
    await chat.type(LAMP_ON)
    await retry_deliveries(chat)
    assert count_cards(chat) == 1


async def test_stock_slack_client_posts_twice_after_a_lost_response(chat: Chat):
    """The twin of Retry."""
    stock = AsyncWebClient("xoxb-1", chat.slack.url, timeout=5)
    chat.slack.unheard = 1
    await stock.chat_postMessage(channel="C0OPS", text="Hello", blocks=build_named_blocks(HELLO))
    assert count_cards(chat) == 2


async def test_reading_slack_api_call_is_retried_after_a_lost_connection(chat: Chat):
    chat.slack.unheard, chat.slack.unheard_of = 1, "users."
    answer = await chat.type("who")
    assert [call for call, _ in chat.slack.calls] == ["users.info", "users.info"]
    assert answer.json["text"] == "Owners"


def test_message_name_is_unique_per_run_and_slot():
    run_view = build_run_view()
    names = [
        with_message_name(HELLO, run_view, slot).name
        for slot in ("card", "card 1.2", "result failed")
    ]
    assert len(set(names)) == 3
    assert with_message_name(HELLO, run_view, "card").name == names[0]
    assert with_message_name(HELLO, run_view, "card").digest == HELLO.digest


def test_message_name_is_found_in_the_blocks():
    message = with_message_name(HELLO, build_run_view(), "card")
    assert has_message_name({"blocks": build_named_blocks(message)}, message.name)
    assert not has_message_name({"blocks": list(HELLO.blocks)}, message.name)
    assert not has_message_name({"text": "no blocks"}, message.name)
    assert client.build_named_blocks(Message("poor", name="x")) == []
