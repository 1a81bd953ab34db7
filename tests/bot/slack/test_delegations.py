"""Delegations, standing grants and counter-proposals in Slack: commands and cards."""

import pytest

from bot.model.run import State
from tests.bot.slack.asgi import Answer
from tests.bot.slack.chat import Chat
from tests.bot.slack.json_walk import list_texts
from tests.bot.slack.web_api import Posted

pytestmark = pytest.mark.anyio


def words(answer: Answer) -> str:
    assert answer.json["response_type"] == "ephemeral"
    return " ".join(list_texts(answer.json["blocks"]))


def newest(chat: Chat) -> Posted:
    return [one for one in chat.slack.posted if not one.thread and not one.seen_by][-1]


def card(chat: Chat) -> str:
    return " ".join(list_texts(newest(chat).blocks))


@pytest.mark.parametrize("who", ["stan", "@stan", "<@U0STAN|someone>", "<@U0STAN>"])
async def test_delegate_command_takes_a_name_or_a_slack_mention(chat: Chat, who: str):
    reply = words(await chat.type(f"delegate to {who} for 2 hours for edge", "U0OLGA"))
    assert "Stan Storage can now decide on your behalf in the edge." in reply
    assert "/keyturn delegate end 1" in reply
    listed = words(await chat.type("delegate", "U0STAN"))
    assert "1. Stan Storage for Olga Owner in the edge" in listed


async def test_delegate_command_ignores_the_display_name_of_a_mention(chat: Chat):
    reply = words(await chat.type("delegate to <@U0DORA|stan> for 2 hours", "U0OLGA"))
    assert "Dora Developer can now decide on your behalf" in reply


async def test_card_mentions_the_delegate_on_behalf_of_the_approver(chat: Chat):
    await chat.type("delegate to stan for 2 hours", "U0OLGA")
    await chat.type("toy set lb1 lamp on")
    assert "on behalf of Olga Owner" in card(chat)
    assert "U0STAN" in str(newest(chat).blocks)
    await chat.press("approve", "U0STAN")
    assert chat.run().state is State.SUCCEEDED
    assert "Approved by Stan Storage on behalf of Olga Owner" in card(chat)


async def test_delegate_end_command_ends_the_delegation(chat: Chat):
    await chat.type("delegate to stan for 2 hours", "U0OLGA")
    assert "has ended" in words(await chat.type("delegate end 1", "U0OLGA"))
    assert "No one decides on your behalf" in words(await chat.type("delegations", "U0OLGA"))


async def test_standing_grant_runs_without_approval_and_card_shows_the_rest(chat: Chat):
    reply = words(
        await chat.type("grant <@U0DORA|d> toy set lb* name=la* 5 an hour until 4h", "U0OLGA")
    )
    assert "Dora Developer can run “toy set lb* name=la*” without approval" in reply
    await chat.type("toy set lb1 lamp on")
    assert chat.run().state is State.SUCCEEDED
    assert "Standing grant 1 by Olga Owner: 4 of 5 left this hour" in card(chat)
    listed = words(await chat.type("grants", "U0DORA"))
    assert "4 of 5 left this hour, granted by Olga Owner" in listed


async def test_ended_standing_grant_no_longer_replaces_the_approval(chat: Chat):
    await chat.type("grant dora toy set lb* 5 an hour until 4h", "U0OLGA")
    await chat.type("grant end 1", "U0ADAM")
    await chat.type("toy set lb1 lamp on")
    assert chat.run().state is State.PENDING


async def test_counter_proposal_is_accepted_by_the_requester_and_approved(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    reply = words(await chat.type("counter 1 value=dim because it is too bright", "U0OLGA"))
    assert "You proposed “toy set lb1 lamp dim” as run 2." in reply
    offered = newest(chat)
    assert "Counter-proposal" in card(chat)
    assert "Olga Owner proposes these values instead of run 1" in card(chat)
    await chat.press("accept", "U0ADAM", message=offered)
    assert chat.run(2).state is State.COUNTER_PROPOSED
    await chat.press("accept", "U0DORA", message=offered)
    assert chat.run(2).state is State.PENDING
    await chat.press("approve", "U0OLGA", message=newest(chat))
    assert chat.run(2).state is State.PENDING
    await chat.press("approve", "U0ADAM", message=newest(chat))
    assert chat.run(2).state is State.SUCCEEDED
    assert chat.harness.fleet.sent == [("lb1", "set lamp dim")]


async def test_requester_withdraws_a_counter_proposal(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    await chat.type("counter 1 value=dim", "U0OLGA")
    await chat.press("withdraw", "U0DORA", message=newest(chat))
    assert chat.run(2).state is State.WITHDRAWN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delegate stan", "Type it like this: delegate to PERSON"),
        ("delegate to stan until whenever", "is not a time: type 18:00"),
        ("delegate to stan until 2020-01-01", "has passed already"),
        ("delegate to ghost for 2 h", "ghost is not in the policy"),
        ("delegate end 7", "no delegation 7"),
        ("grant dora toy set lb*", "Type it like this: grant PERSON"),
        ("grant dora toy st lb* 5 an hour for 2 h", "Did you mean"),
        ("grant dora toy set lb* lamp 5 an hour for 2 h", "'lamp' is not a value for a field"),
        ("grant olga toy set lb* 5 an hour for 2 h", "You cannot grant yourself"),
        ("grant end 7", "no grant 7"),
        ("counter 7 value=dim", "There is no run 7."),
        ("counter value=dim", "The run number is missing: type /keyturn counter N field=value"),
        ("accept 7", "The plan is missing: copy its ten characters"),
    ],
)
async def test_invalid_delegation_grant_or_counter_proposal_is_refused_with_a_fix(
    chat: Chat, text: str, message: str
):
    assert message in (await chat.type(text, "U0OLGA")).text
