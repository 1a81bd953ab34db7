"""What people write in the thread of a card: the run is known, and nothing is decided by text."""

import pytest

from bot.model.run import State
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat
from tests.bot.slack.web_api import Posted
from tests.policies import get_signed_rules

pytestmark = pytest.mark.anyio


async def mention(
    chat: Chat, text: str, user: str = "U0OLGA", thread: str = "", channel: str = "C0OPS"
) -> Posted:
    """Write in the thread of the card; return the one answer, which only that person sees."""
    before = len(chat.slack.posted)
    thread = thread or chat.slack.card.ts
    await chat.send(
        payloads.mention(f"<@U0KEYTURN> {text}", user, thread_ts=thread, channel=channel)
    )
    await chat.settle()
    [answer] = chat.slack.posted[before:]
    assert (answer.seen_by, answer.thread) == (user, thread)
    return answer


async def request(chat: Chat) -> None:
    await chat.type("toy set lb1 lamp on because it is dark")


async def test_approve_in_a_thread_shows_the_plan_with_a_button_that_approves_it(chat: Chat):
    await request(chat)
    answer = await mention(chat, "approve")
    assert list(answer.buttons) == ["approve"]
    assert answer.buttons["approve"]["value"] == f"1:{chat.run().short_digest}"
    assert "set lamp on" in answer.words
    assert chat.run().state is State.PENDING
    await chat.press("approve", "U0OLGA", message=answer)
    assert chat.run().state is State.SUCCEEDED
    assert "Approve: done" in answer.words


async def test_button_of_a_thread_does_not_approve_another_plan(chat: Chat):
    await request(chat)
    answer = await mention(chat, "approve!")
    other = f"1:{'0' * 10}"
    await chat.press("approve", "U0OLGA", message=answer, value=other)
    assert chat.run().state is State.PENDING
    assert "has changed since this button" in chat.slack.posted[-1].words


async def test_deny_in_a_thread_opens_its_form_with_the_typed_reason(chat: Chat):
    await request(chat)
    answer = await mention(chat, "deny not today, because of the sale")
    await chat.press("deny", "U0OLGA", message=answer)
    [view] = chat.slack.views.values()
    [reason] = [one["element"] for one in view["blocks"] if one.get("block_id") == "because"]
    assert reason["initial_value"] == "not today, because of the sale"
    assert chat.run().state is State.PENDING
    await chat.submit({"because": "not today"}, "U0OLGA")
    assert chat.run().state is State.DENIED


@pytest.mark.parametrize("text", ["why", "who?", "", "status", "help"])
async def test_question_in_a_thread_shows_the_run_with_what_this_person_can_do(
    chat: Chat, text: str
):
    await request(chat)
    owner = await mention(chat, text)
    assert "it is dark" in owner.words
    assert "0 of 1 approval" in owner.words
    assert list(owner.buttons) == ["approve", "deny", "question"]
    requester = await mention(chat, text, "U0DORA")
    assert list(requester.buttons) == ["withdraw"]


async def test_undo_and_again_in_a_thread_offer_the_button_of_the_ended_run(chat: Chat):
    await request(chat)
    await chat.type(f"approve 1 {chat.run().short_digest}", "U0OLGA")
    assert chat.run().state is State.SUCCEEDED
    assert list((await mention(chat, "undo", "U0DORA")).buttons) == ["undo"]
    again = await mention(chat, "again", "U0DORA")
    await chat.press("again", "U0DORA", message=again)
    [view] = chat.slack.views.values()
    assert view["title"]["text"] == "toy set"


async def test_person_who_may_not_decide_is_answered_without_a_button(chat: Chat):
    await request(chat)
    answer = await mention(chat, "approve", "U0DORA")
    assert answer.words.startswith("You cannot approve run 1 now")
    assert answer.buttons == {}
    assert chat.run().state is State.PENDING


async def test_other_text_and_other_threads_are_answered_as_elsewhere(chat: Chat):
    await request(chat)
    assert "/keyturn toy show lb2" in (await mention(chat, "toy show lb2")).words
    elsewhere = await mention(chat, "approve", thread="1700000000.000077")
    assert "approve" not in elsewhere.buttons


async def test_thread_of_a_run_that_the_person_may_not_view_shows_nothing_of_it(chat: Chat):
    await request(chat)
    rules = chat.harness.policies.path / "policy.cedar"
    hidden = 'forbid (principal == Person::"stan", action == Action::"view", resource);\n'
    rules.write_text(f"{rules.read_text()}\n{hidden}")
    answer = await mention(chat, "why", "U0STAN")
    assert "lamp" not in answer.words
    assert "approve" not in answer.buttons


async def test_hold_in_a_thread_offers_the_button_of_a_run_that_starts_later(chat: Chat):
    await request(chat)
    refused = await mention(chat, "hold")
    assert refused.words.startswith("You cannot hold run 1 now")
    await chat.type(f"approve 1 {chat.run().short_digest} at 2 hours", "U0OLGA")
    answer = await mention(chat, "hold")
    assert list(answer.buttons) == ["hold"]
    await chat.press("hold", "U0OLGA", message=answer)
    assert chat.run().state is State.PENDING


async def test_approve_in_a_thread_says_who_has_to_sign_first(chat: Chat):
    (chat.harness.policies.path / "policy.cedar").write_text(get_signed_rules("both"))
    await request(chat)
    card, _ = chat.slack.posted
    refused = await mention(chat, "approve", thread=card.ts)
    assert refused.words.startswith(
        "You cannot approve run 1 now: Dora Developer has to sign the plan first."
    )
