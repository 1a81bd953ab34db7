"""Copies of the approval card sent to approvers by direct message."""

import asyncio
from contextlib import suppress

import pytest

from bot.db import runs
from bot.model.errors import TooLate
from bot.model.run import State
from bot.policy.oncall import Duty
from bot.slack.identity import IdentityService
from tests.bot.duties import add_calendar, build_duties, with_facts
from tests.bot.harness import Harness
from tests.bot.slack import payloads
from tests.bot.slack.chat import PENDING_BUTTONS, Chat, open_chat
from tests.bot.slack.json_walk import list_mentions
from tests.policies import get_signed_rules

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on"
MINUTE = 60_000_000


@pytest.fixture
async def reminded_chat(chat: Chat) -> Chat:
    """A request for which nobody has decided for longer than the rule has patience."""
    await chat.type(LAMP_ON)
    with chat.harness.database.transaction() as tx:
        run = runs.lock_run(tx, 1)
        runs.amend_run(tx, run, pending_since=tx.now - 31 * MINUTE)
    chat.harness.service.advancer.remind_approvers()
    await chat.settle()
    return chat


async def test_approvers_get_no_direct_message_before_the_reminder_is_due(chat: Chat):
    await chat.type(LAMP_ON)
    assert [one.channel for one in chat.slack.posted] == ["C0OPS"]


async def test_requester_who_signs_first_is_told_in_a_direct_message(harness: Harness):
    (harness.policies.path / "policy.cedar").write_text(get_signed_rules("both"))
    async with open_chat(harness) as chat:
        await chat.type(LAMP_ON)
        assert [one.channel for one in chat.slack.posted] == ["C0OPS", "D0DORA"]
        [copy] = chat.slack.seen_in("D0DORA")
        assert "First the requester signs this plan" in copy.words
        chat.harness.service.withdraw_run(1, person="dora")
        await chat.settle()
        [copy] = chat.slack.seen_in("D0DORA")
        assert "signs this plan" not in copy.words


async def test_approver_on_duty_is_mentioned_before_the_other_approvers(harness: Harness):
    add_calendar(harness.policies.path)
    facts = build_duties(edge=Duty(("adam",), is_known=True))
    harness.policies = with_facts(harness.policies, harness.database, facts)
    async with open_chat(harness) as chat:
        await chat.type(LAMP_ON)
        [card] = chat.slack.seen_in("C0OPS")
        assert list_mentions(card.blocks) == ["U0ADAM"]
        assert "(on duty) Olga Owner" in " ".join(card.words.split())
        assert [one.channel for one in chat.slack.posted] == ["C0OPS", "D0ADAM"]
        with harness.database.transaction() as tx:
            run = runs.lock_run(tx, 1)
            runs.amend_run(tx, run, pending_since=tx.now - 31 * MINUTE)
        harness.service.advancer.remind_approvers()
        await chat.settle()
        assert len(chat.slack.seen_in("D0OLGA")) == len(chat.slack.seen_in("D0ADAM")) == 1
        [card] = [one for one in chat.slack.seen_in("C0OPS") if not one.thread]
        assert list_mentions(card.blocks) == ["U0ADAM", "U0OLGA"]


async def test_reminder_sends_each_pending_approver_a_card_with_buttons(reminded_chat: Chat):
    for user in ("D0ADAM", "D0OLGA"):
        [copy] = reminded_chat.slack.seen_in(user)
        assert set(copy.buttons) == PENDING_BUTTONS
        assert "set lamp on" in copy.words
    assert reminded_chat.slack.seen_in("D0DORA") == reminded_chat.slack.seen_in("D0STAN") == []


async def test_approval_on_a_copy_removes_the_buttons_from_every_card(reminded_chat: Chat):
    [mine] = reminded_chat.slack.seen_in("D0OLGA")
    [other] = reminded_chat.slack.seen_in("D0ADAM")
    await reminded_chat.press("approve", "U0OLGA", message=mine)
    assert reminded_chat.harness.fleet.sent == [("lb1", "set lamp on")]
    cards = [one for one in reminded_chat.slack.posted if "the edge · requested by" in one.words]
    assert len(cards) == 3
    for card in cards:
        assert "approve" not in card.buttons
        assert "Approved by Olga Owner · <!date^" in card.words
    assert "Succeeded" in other.text


async def test_denial_is_shown_on_every_card_and_mentions_the_requester(reminded_chat: Chat):
    [mine] = reminded_chat.slack.seen_in("D0OLGA")
    [other] = reminded_chat.slack.seen_in("D0ADAM")
    await reminded_chat.deny("U0OLGA", message=mine)
    assert other.buttons == {}
    assert "Denied" in other.text
    assert "Olga Owner denied it" in other.words
    calls = [one for one in reminded_chat.slack.posted if one.thread and list_mentions(one.blocks)]
    assert [list_mentions(one.blocks) for one in calls] == [["U0DORA"]]


async def test_simultaneous_approvals_on_two_copies_execute_once(reminded_chat: Chat):
    [olga] = reminded_chat.slack.seen_in("D0OLGA")
    [adam] = reminded_chat.slack.seen_in("D0ADAM")
    await asyncio.gather(
        reminded_chat.press("approve", "U0OLGA", message=olga),
        reminded_chat.press("approve", "U0ADAM", message=adam),
    )
    assert reminded_chat.harness.fleet.sent == [("lb1", "set lamp on")]
    assert reminded_chat.harness.list_entry_kinds(reminded_chat.run()).count("approved") == 1


async def test_deleted_card_copy_is_not_sent_again_after_approval(reminded_chat: Chat):
    reminded_chat.slack.posted = [
        one for one in reminded_chat.slack.posted if one.channel != "D0ADAM"
    ]
    await reminded_chat.press("approve", "U0OLGA", message=reminded_chat.slack.seen_in("C0OPS")[0])
    assert reminded_chat.run().state is State.SUCCEEDED
    assert reminded_chat.slack.seen_in("D0ADAM") == []


@pytest.mark.parametrize("error", ["user_disabled", "account_inactive", "cannot_dm_bot"])
async def test_unreachable_approver_does_not_delay_the_reminder_of_others(chat: Chat, error: str):
    chat.slack.refuse("conversations.open", error)
    await chat.type(LAMP_ON)
    with chat.harness.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, 1), pending_since=tx.now - 31 * MINUTE)
    chat.harness.service.advancer.remind_approvers()
    await chat.settle()
    await chat.settle()
    assert [call for call, _ in chat.slack.calls].count("conversations.open") == 2
    assert len(chat.slack.seen_in("D0OLGA")) == 1


async def test_approvers_get_a_card_at_once_when_the_channel_is_unknown(chat: Chat):
    await chat.type(LAMP_ON, channel="C0SECRET")
    assert len(chat.slack.seen_in("D0DORA")) == 1
    [copy] = chat.slack.seen_in("D0OLGA")
    await chat.press("approve", "U0OLGA", message=copy)
    assert chat.run().state is State.SUCCEEDED


async def test_approval_on_a_copy_is_refused_to_a_person_without_the_right(reminded_chat: Chat):
    [copy] = reminded_chat.slack.seen_in("D0OLGA")
    await reminded_chat.press("approve", "U0STAN", message=copy)
    assert reminded_chat.run().state is State.PENDING


# Accounts that may not act, and what they are told.
BARRED: dict[str, tuple[dict[str, object], str]] = {
    "deactivated": ({"deleted": True}, "is deactivated"),
    "a bot": ({"is_bot": True}, "is a bot"),
    "a workflow": ({"is_workflow_bot": True}, "is a workflow"),
    "a guest": ({"is_restricted": True}, "is a guest account"),
    "a guest in one channel": ({"is_ultra_restricted": True}, "is a guest account"),
    "a stranger by Slack Connect": (
        {"is_stranger": True},
        "belongs to another Slack workspace",
    ),
    "of another workspace": ({"team_id": "T0OTHER"}, "belongs to another Slack workspace"),
}


@pytest.mark.parametrize("who", BARRED)
async def test_barred_slack_account_cannot_decide_and_is_told_why(chat: Chat, who: str):
    flag, message = BARRED[who]
    await chat.type(LAMP_ON)
    chat.slack.users["U0OLGA"] = flag
    for action in ("approve", "deny"):
        await chat.press(action, "U0OLGA")
    assert chat.run().state is State.PENDING
    assert [message in one.words for one in chat.slack.whispers("U0OLGA")] == [True, True]
    assert set(chat.slack.card.buttons) == PENDING_BUTTONS


@pytest.mark.parametrize("who", BARRED)
async def test_without_the_account_check_a_barred_account_approves(
    chat: Chat, who: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(IdentityService, "_get_barred_reason", _accept_account)
    await chat.type(LAMP_ON)
    chat.slack.users["U0OLGA"], _ = BARRED[who]
    await chat.press("approve", "U0OLGA")
    assert chat.run().state is State.SUCCEEDED


async def _accept_account(_identity: IdentityService, _account: object) -> str:
    return ""


async def test_approval_click_after_expiry_is_refused_as_expired(chat: Chat):
    await chat.type(LAMP_ON)
    approve = chat.slack.card.buttons["approve"]["value"]
    with chat.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE run SET expires_at = 1")
    chat.harness.service.advancer.expire_runs()
    await chat.settle()
    assert set(chat.slack.card.buttons) == {"replan", "again", "commands"}
    await chat.press("approve", "U0OLGA", value=approve)
    assert chat.run().state is State.EXPIRED
    assert "expired" in chat.slack.whispers("U0OLGA")[0].words.lower()


async def test_simultaneous_approvals_in_slack_and_web_execute_once(chat: Chat):
    await chat.type(LAMP_ON)
    run = chat.run()

    def on_the_web() -> None:
        with suppress(TooLate):
            chat.harness.service.approve_run(1, person="adam", digest=run.digest)

    await asyncio.gather(chat.press("approve", "U0OLGA"), asyncio.to_thread(on_the_web))
    await chat.settle()
    assert chat.harness.fleet.sent == [("lb1", "set lamp on")]
    assert chat.harness.list_entry_kinds(chat.run()).count("approved") == 1
    assert "approve" not in chat.slack.card.buttons


async def test_approve_button_works_after_a_restart(harness: Harness):
    async with open_chat(harness) as before:
        await before.type(LAMP_ON)
        card = before.slack.card
    async with open_chat(harness) as after:
        after.slack.posted.append(card)
        await after.press("approve", "U0OLGA", message=card)
        assert after.run().state is State.SUCCEEDED
        assert "approve" not in card.buttons


async def test_result_is_sent_to_the_requester_when_the_channel_is_archived(chat: Chat):
    await chat.type(LAMP_ON)
    chat.slack.refuse("chat.update", "is_archived")
    chat.slack.channels.clear()
    value = chat.slack.card.buttons["approve"]["value"]
    card = chat.slack.card
    payload = payloads.click("approve", value, "U0OLGA", channel=card.channel, ts=card.ts)
    await chat.send(payloads.interaction(payload))
    await chat.settle()
    assert chat.run().state is State.SUCCEEDED
    messages = chat.slack.seen_in("D0DORA")
    assert any(one.text.startswith("Run 1 · Succeeded") for one in messages)
