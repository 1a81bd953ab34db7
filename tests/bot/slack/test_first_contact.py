"""The first contact: messages to the app, the welcome, and people who are not in the policy."""

import itertools
import json

import pytest

from bot.slack.payloads import parse_direct_message
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat
from tests.bot.slack.web_api import Posted

pytestmark = pytest.mark.anyio
_numbers = itertools.count(1)


async def write(chat: Chat, text: str, user: str = "U0DORA", **other: str) -> list[Posted]:
    """Write to the app; return what it answers."""
    before = len(chat.slack.posted)
    await chat.send(payloads.direct_message(text, user, **other))
    await chat.settle()
    return chat.slack.posted[before:]


async def open_app(chat: Chat, user: str, tab: str) -> list[Posted]:
    before = len(chat.slack.posted)
    await chat.send(payloads.event(f"EvOpened{next(_numbers)}", user=user, tab=tab))
    await chat.settle()
    return chat.slack.posted[before:]


def list_values(message: Posted) -> list[str]:
    rows = [block for block in message.blocks if block["type"] == "actions"]
    return [element["value"] for row in rows for element in row["elements"]]


@pytest.mark.parametrize("text", ["help", "hi", "?", "what can you do?"])
async def test_message_to_the_app_is_answered_with_the_first_screen(chat: Chat, text: str):
    [answer] = await write(chat, text)
    assert (answer.channel, answer.seen_by, answer.thread) == ("D0DORA", "", "")
    assert "anything lb1" in list_values(answer)


async def test_message_to_the_app_is_answered_with_the_filled_form(chat: Chat):
    [answer] = await write(chat, "toy set on lb1 lamp on please", thread_ts="1700000000.000001")
    assert answer.thread == "1700000000.000001"
    assert "toy set host=lb1 name=lamp" in " ".join(list_values(answer))
    assert chat.harness.list_entry_kinds() == []


async def test_messages_of_bots_are_not_answered(chat: Chat):
    assert await write(chat, "help", bot_id="B0KEYTURN") == []


@pytest.mark.parametrize("subtype", ["message_changed", "message_deleted", "channel_topic"])
def test_edits_and_notes_of_slack_are_no_messages(subtype: str):
    body = json.loads(payloads.direct_message("help"))
    assert parse_direct_message(body) is not None
    body["event"]["subtype"] = subtype
    assert parse_direct_message(body) is None


@pytest.mark.parametrize("tab", ["home", "messages"])
async def test_person_is_welcomed_once_with_what_they_can_do_now(chat: Chat, tab: str):
    [welcome] = await open_app(chat, "U0DORA", tab)
    assert (welcome.channel, welcome.text) == ("D0DORA", "Welcome to Keyturn")
    assert "another person approves it" in welcome.words
    values = list_values(welcome)
    assert {"anything", "anything lb1", "changed 24h"} <= set(values)
    assert await open_app(chat, "U0DORA", "home") == []
    assert len(await open_app(chat, "U0OLGA", tab)) == 1


async def test_read_button_shows_what_its_command_shows_to_one_person(chat: Chat):
    await chat.type("toy show lb1")
    [welcome] = await open_app(chat, "U0DORA", "messages")
    before = len(chat.slack.posted)
    button = next(one for one in welcome.buttons.values() if one["value"] == "runs")
    await chat.press(button["action_id"], "U0DORA", message=welcome, value=button["value"])
    [answer] = chat.slack.posted[before:]
    assert "toy show lb1" in answer.words
    assert answer.channel == "D0DORA"


async def test_read_button_runs_no_other_command(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    for forged in ("withdraw 1", "toy set lb2 lamp on", "ban olga because x", ""):
        await chat.press("read-0", "U0DORA", value=forged)
    assert chat.run().is_ended is False
    assert len([one for one in chat.harness.list_entry_kinds() if one == "requested"]) == 1


async def test_unknown_person_is_told_whom_to_ask_and_a_button_asks_once(chat: Chat):
    [answer] = await write(chat, "help", "U0NOBODY")
    assert "Ask a Keyturn administrator (Olga Owner, Adam Admin, Stan Storage)" in answer.words
    before = len(chat.slack.posted)
    for _ in range(2):
        await chat.press("ask-access", "U0NOBODY", message=answer)
    asked = [one for one in chat.slack.posted[before:] if one.channel in OWNERS]
    assert {one.channel for one in asked} == OWNERS
    assert len(asked) == len(OWNERS)
    assert "slack: [{team: T0KEYTURN, user: U0NOBODY}]" in asked[0].words
    told = [one.words for one in chat.slack.posted[before:] if one not in asked]
    assert told[0].startswith("Asked Olga Owner, Adam Admin, Stan Storage")
    assert "asked already" in told[1]


OWNERS = {"D0OLGA", "D0ADAM", "D0STAN"}


async def test_known_person_who_presses_ask_for_access_is_told_so(chat: Chat):
    [answer] = await write(chat, "help", "U0NOBODY")
    await chat.press("ask-access", "U0DORA", message=answer)
    assert "Keyturn knows you" in chat.slack.posted[-1].words
    assert not any(one.channel in OWNERS for one in chat.slack.posted)


@pytest.mark.parametrize("flag", ["is_restricted", "is_stranger"])
async def test_guest_and_person_of_another_organisation_are_answered_without_names(
    chat: Chat, flag: str
):
    chat.slack.users["U0GUEST"] = {flag: True}
    await chat.send(payloads.mention("<@U0KEYTURN> help", "U0GUEST"))
    await chat.settle()
    [answer] = chat.slack.whispers("U0GUEST")
    assert "Nothing was done: this Slack account" in answer.words
    assert "Olga" not in answer.words
    assert list_values(answer) == []


async def test_mention_whose_answer_slack_does_not_deliver_is_answered_in_its_thread(chat: Chat):
    chat.slack.users["U0GUEST"] = {"is_stranger": True}
    for _ in range(2):
        chat.slack.refuse("chat.postEphemeral", "user_not_in_channel")
        chat.slack.refuse("conversations.open", "user_not_visible")
    await chat.send(payloads.mention("<@U0KEYTURN> help", "U0GUEST", ts="1700000000.000009"))
    await chat.settle()
    [answer] = chat.slack.posted
    assert (answer.channel, answer.thread, answer.seen_by) == ("C0OPS", "1700000000.000009", "")
    assert "members of this workspace" in answer.words
