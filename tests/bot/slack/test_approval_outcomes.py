"""Every outcome of an approval in Slack happens once and is shown to everyone concerned.

The table names the tests of each outcome; most are in the test file of the part that answers.
"""

import pytest

from bot.model.run import State
from bot.slack.client import CLOSED_CHANNEL_ERRORS, GONE_MESSAGE_ERRORS
from tests.bot.slack.chat import Chat
from tests.bot.slack.named_tests import missing
from tests.bot.slack.test_approver_dms import BARRED

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on"
_BARRED = (
    "test_approver_dms.test_barred_slack_account_cannot_decide_and_is_told_why",
    "test_approver_dms.test_without_the_account_check_a_barred_account_approves",
)
# The tests of each ending, by file and name.
ENDINGS = {
    "double click": ("test_approval_flow.test_double_click_on_approve_is_one_approval",),
    "two approvers": (
        "test_approval_flow.test_simultaneous_approvals_execute_once_and_name_the_first_approver",
        "test_approver_dms.test_simultaneous_approvals_on_two_copies_execute_once",
    ),
    "chat and web at once": (
        "test_approver_dms.test_simultaneous_approvals_in_slack_and_web_execute_once",
    ),
    "click after the decision": (
        "test_approval_flow.test_approval_click_after_the_decision_names_the_approver",
    ),
    "click after expiry": (
        "test_approver_dms.test_approval_click_after_expiry_is_refused_as_expired",
    ),
    "stale button after restart": (
        "test_approver_dms.test_approve_button_works_after_a_restart",
        "test_approval_outcomes.test_stale_button_of_a_succeeded_run_decides_nothing",
        "test_outbox.test_button_of_a_replaced_card_decides_nothing",
        "test_approval_flow.test_forged_button_value_decides_nothing",
        "test_approval_flow.test_without_the_message_check_a_copied_button_approves",
    ),
    "deleted message": (
        "test_outbox.test_deleted_card_is_posted_again",
        "test_approval_outcomes.test_card_that_slack_refuses_to_update_is_posted_again",
    ),
    "archived channel": (
        "test_approver_dms.test_result_is_sent_to_the_requester_when_the_channel_is_archived",
        "test_approval_outcomes.test_card_is_sent_to_the_requester_when_the_channel_is_closed",
    ),
    "bot not in channel": (
        "test_outbox.test_card_goes_to_the_default_channel_when_the_bot_is_not_in_the_channel",
        "test_outbox.test_requester_gets_the_card_and_an_invite_hint_without_a_channel",
    ),
    "clicker not in channel": (
        "test_approval_outcomes.test_refused_click_is_explained_by_direct_message_outside_the_channel",
    ),
    "deactivated approver": (
        *_BARRED,
        "test_approver_dms.test_unreachable_approver_does_not_delay_the_reminder_of_others",
    ),
    "Slack Connect stranger": _BARRED,
    "guest": _BARRED,
    "bot": _BARRED,
    "own request": ("test_approval_flow.test_requester_cannot_approve_their_own_request",),
    "somebody without authority": (
        "test_approval_flow.test_unauthorised_approval_click_is_refused_ephemerally_with_those_who_can",
    ),
    "somebody unknown": (
        "test_approval_flow.test_unknown_slack_account_can_neither_request_nor_approve",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_approval_outcome_names_tests_that_exist(ending: str):
    assert missing(ENDINGS[ending]) == []


def test_barred_accounts_include_deactivated_bot_guest_and_slack_connect():
    assert set(BARRED) >= {"deactivated", "a bot", "a guest", "a stranger by Slack Connect"}


async def test_stale_button_of_a_succeeded_run_decides_nothing(chat: Chat):
    await chat.type(LAMP_ON)
    value = chat.slack.card.buttons["approve"]["value"]
    await chat.press("approve", "U0OLGA")
    done = list(chat.harness.fleet.sent)
    # Somebody's Slack was away meanwhile, and shows the card as it was.
    for action in ("approve", "deny"):
        await chat.press(action, "U0ADAM", value=value)
    assert chat.harness.fleet.sent == done
    assert chat.run().state is State.SUCCEEDED
    for message in chat.slack.whispers("U0ADAM"):
        assert "succeeded already" in message.words or "was approved by" in message.words


@pytest.mark.parametrize("error", sorted(GONE_MESSAGE_ERRORS | CLOSED_CHANNEL_ERRORS))
async def test_card_that_slack_refuses_to_update_is_posted_again(chat: Chat, error: str):
    await chat.type(LAMP_ON)
    first = chat.slack.card
    chat.slack.refuse("chat.update", error)
    await chat.press("approve", "U0OLGA", message=first)
    cards = [one for one in chat.slack.posted if not one.thread and one is not first]
    assert [card.text.partition(":")[0] for card in cards] == ["Run 1 · Succeeded"]


@pytest.mark.parametrize("error", sorted(CLOSED_CHANNEL_ERRORS))
async def test_card_is_sent_to_the_requester_when_the_channel_is_closed(chat: Chat, error: str):
    chat.slack.refuse("chat.postMessage", error)
    await chat.type(LAMP_ON)
    [card] = chat.slack.seen_in("D0DORA")
    assert "Keyturn cannot post in <#C0OPS>" in card.words
    [copy] = chat.slack.seen_in("D0OLGA")
    await chat.press("approve", "U0OLGA", message=copy)
    assert chat.run().state is State.SUCCEEDED


@pytest.mark.parametrize("error", ["user_not_in_channel", "is_archived", "channel_not_found"])
async def test_refused_click_is_explained_by_direct_message_outside_the_channel(
    chat: Chat, error: str
):
    await chat.type(LAMP_ON)
    chat.slack.refuse("chat.postEphemeral", error)
    await chat.press("approve", "U0STAN")
    [message] = chat.slack.seen_in("D0STAN")
    assert "Those who can: Adam Admin, Olga Owner" in message.words
    assert chat.run().state is State.PENDING
