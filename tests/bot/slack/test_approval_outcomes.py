"""However an approval in chat ends, it ends once and everybody is answered honestly.

Most endings have their tests where the part is tested that answers; the table says where.
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
    "test_approver_dms.test_who_may_not_act_is_notified_and_decides_nothing",
    "test_approver_dms.test_without_the_guard_they_would_decide",
)
# The tests of each ending, by file and name.
ENDINGS = {
    "double click": ("test_approval_flow.test_a_double_click_is_one_vote",),
    "two approvers": (
        "test_approval_flow.test_two_approvers_at_once_have_one_effect_and_one_honest_loser",
        "test_approver_dms.test_two_who_press_their_copies_at_once_have_one_effect",
    ),
    "chat and web at once": ("test_approver_dms.test_chat_and_web_at_once_have_one_effect",),
    "click after the decision": (
        "test_approval_flow.test_a_click_after_the_end_says_who_settled_it",
    ),
    "click after expiry": ("test_approver_dms.test_a_click_after_expiry_says_so",),
    "stale button after restart": (
        "test_approver_dms.test_a_button_works_after_a_restart",
        "test_approval_outcomes.test_a_button_from_before_a_restart_does_not_decide_again",
        "test_outbox.test_a_button_of_a_card_that_was_replaced_decides_nothing",
        "test_approval_flow.test_a_forged_button_decides_nothing",
        "test_approval_flow.test_without_the_guard_it_would_approve",
    ),
    "deleted message": (
        "test_outbox.test_a_card_that_was_deleted_is_posted_anew_and_works",
        "test_approval_outcomes.test_a_card_that_cannot_be_changed_any_more_is_posted_anew",
    ),
    "archived channel": (
        "test_approver_dms.test_an_archived_channel_keeps_no_one_from_hearing",
        "test_approval_outcomes.test_a_closed_channel_leaves_the_card_to_the_requester",
    ),
    "bot not in channel": (
        "test_outbox.test_a_channel_that_the_bot_is_not_in_falls_back_to_the_area_then_to_the_default",
        "test_outbox.test_without_any_channel_the_requester_learns_directly_how_to_invite",
    ),
    "clicker not in channel": (
        "test_approval_outcomes.test_denial_reaches_people_outside_the_channel",
    ),
    "deactivated approver": (
        *_BARRED,
        "test_approver_dms.test_an_approver_who_cannot_be_reached_holds_nothing_up",
    ),
    "Slack Connect stranger": _BARRED,
    "guest": _BARRED,
    "bot": _BARRED,
    "own request": ("test_approval_flow.test_no_one_approves_their_own_request",),
    "somebody without authority": (
        "test_approval_flow.test_an_unauthorised_click_is_refused_to_that_person_alone",
    ),
    "somebody unknown": ("test_approval_flow.test_a_stranger_gets_nowhere",),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_has_tests_of_that_name(ending: str):
    assert missing(ENDINGS[ending]) == []


def test_every_kind_of_account_that_may_not_act_is_tried():
    assert set(BARRED) >= {"deactivated", "a bot", "a guest", "a stranger by Slack Connect"}


async def test_a_button_from_before_a_restart_does_not_decide_again(chat: Chat):
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
async def test_a_card_that_cannot_be_changed_any_more_is_posted_anew(chat: Chat, error: str):
    await chat.type(LAMP_ON)
    first = chat.slack.card
    chat.slack.refuse("chat.update", error)
    await chat.press("approve", "U0OLGA", message=first)
    cards = [one for one in chat.slack.posted if not one.thread and one is not first]
    assert [card.text.partition(":")[0] for card in cards] == ["Succeeded"]


@pytest.mark.parametrize("error", sorted(CLOSED_CHANNEL_ERRORS))
async def test_a_closed_channel_leaves_the_card_to_the_requester(chat: Chat, error: str):
    chat.slack.refuse("chat.postMessage", error)
    await chat.type(LAMP_ON)
    [card] = chat.slack.seen_in("D0DORA")
    assert "Keyturn cannot post in <#C0OPS>" in card.words
    [copy] = chat.slack.seen_in("D0OLGA")
    await chat.press("approve", "U0OLGA", message=copy)
    assert chat.run().state is State.SUCCEEDED


@pytest.mark.parametrize("error", ["user_not_in_channel", "is_archived", "channel_not_found"])
async def test_denial_reaches_people_outside_the_channel(chat: Chat, error: str):
    await chat.type(LAMP_ON)
    chat.slack.refuse("chat.postEphemeral", error)
    await chat.press("approve", "U0STAN")
    [message] = chat.slack.seen_in("D0STAN")
    assert "Those who can: Adam Admin, Olga Owner" in message.words
    assert chat.run().state is State.PENDING
