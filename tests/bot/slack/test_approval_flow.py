"""Request, approval and execution in Slack: what runs is the plan that was approved."""

import asyncio
from typing import Any

import pytest

from bot.audit import change_log
from bot.db import runs
from bot.model.run import State
from bot.slack.actions import DecisionHandler, parse_button_value
from bot.slack.payloads import ButtonClick
from tests.bot.slack import payloads
from tests.bot.slack.chat import PENDING_BUTTONS, Chat
from tests.bot.slack.json_walk import list_mentions
from tests.ticket_system import require_unreachable_tickets

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on because the cellar is dark"


async def test_change_runs_after_an_owner_approves_by_button(chat: Chat):
    answer = await chat.type(LAMP_ON, "U0DORA")
    assert (answer.status, answer.body) == (200, b"")
    card = chat.slack.card
    assert card.text == (
        "Run 1 · Needs approval: toy set lb1 lamp on (the edge), requested by Dora Developer"
    )
    assert "the cellar is dark" in card.words
    assert "set lamp on" in card.words
    assert "can be undone" in card.words
    assert set(card.buttons) == PENDING_BUTTONS
    assert chat.harness.fleet.sent == []

    await chat.press("approve", "U0OLGA")

    assert chat.harness.fleet.sent == [("lb1", "set lamp on")]
    assert chat.run().state is State.SUCCEEDED
    assert card.text.startswith("Run 1 · Succeeded: toy set lb1 lamp on (the edge) – ")
    assert "Approved by Olga Owner" in card.words
    assert set(card.buttons) == {"undo", "commands"}


async def test_result_in_the_thread_mentions_only_the_requester(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("approve", "U0OLGA")
    [result] = [one for one in chat.slack.posted if one.thread]
    assert result.thread == chat.slack.card.ts
    assert list_mentions(result.blocks) == ["U0DORA"]
    assert "lamp is on now" in result.words


async def test_read_only_run_posts_one_message(chat: Chat):
    answer = await chat.type("toy show lb1", "U0STAN")
    assert answer.body == b""
    [message] = chat.slack.posted
    assert message.text == "Run 1 · Succeeded: toy show lb1 (the edge) – 2 switches"
    assert "lamp=off" in message.words


async def test_simultaneous_approvals_execute_once_and_name_the_first_approver(chat: Chat):
    await chat.type(LAMP_ON)
    await asyncio.gather(chat.press("approve", "U0OLGA"), chat.press("approve", "U0ADAM"))
    assert chat.harness.fleet.sent == [("lb1", "set lamp on")]
    [loser] = [one for one in chat.slack.posted if one.seen_by]
    winner = chat.harness.list_entry_kinds(chat.run()).count("approved")
    assert winner == 1
    assert "was approved by" in loser.words
    assert {"U0OLGA": "adam", "U0ADAM": "olga"}[loser.seen_by] in loser.words.lower()


async def test_requester_cannot_approve_their_own_request(chat: Chat):
    await chat.type("toy break lb1 lamp", "U0OLGA")
    await chat.press("submit", "U0OLGA", message=chat.slack.whispers("U0OLGA")[0])
    [card] = [one for one in chat.slack.posted if not one.seen_by]
    shown = list(card.blocks)
    await chat.press("approve", "U0OLGA", message=card)
    assert chat.run().state is State.PENDING
    assert card.blocks == shown
    *_, whisper = chat.slack.whispers("U0OLGA")
    assert "you requested it" in whisper.words


async def test_unauthorised_approval_click_is_refused_ephemerally_with_those_who_can(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("approve", "U0STAN")
    assert chat.run().state is State.PENDING
    assert "Those who can: Adam Admin, Olga Owner" in chat.slack.whispers("U0STAN")[0].words
    assert chat.slack.card.updates == 0


async def test_unknown_slack_account_can_neither_request_nor_approve(chat: Chat):
    answer = await chat.type(LAMP_ON, "U0NOBODY")
    assert "does not know your Slack account U0NOBODY" in answer.text
    await chat.type(LAMP_ON)
    await chat.press("approve", "U0NOBODY")
    assert chat.run().state is State.PENDING
    assert "does not know" in chat.slack.whispers("U0NOBODY")[0].words


async def test_denial_is_final_and_its_reason_is_shown_on_the_card(chat: Chat):
    await chat.type(LAMP_ON)
    answer = await chat.type("deny 1 not during the customer's audit", "U0ADAM")
    assert answer.text == "You denied run 1."
    assert chat.run().state is State.DENIED
    assert "Denied" in chat.slack.card.words
    assert "not during the customer's audit" in chat.slack.card.words
    assert set(chat.slack.card.buttons) == {"again", "commands"}
    [result] = [one for one in chat.slack.posted if one.thread]
    assert list_mentions(result.blocks) == ["U0DORA"]


async def test_deny_button_opens_a_form_that_requires_a_reason(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("deny", "U0OLGA")
    assert chat.run().state is State.PENDING
    [form] = chat.slack.views.values()
    assert form["title"]["text"] == "Deny run 1"
    [reason] = [block for block in form["blocks"] if block["type"] == "input"]
    assert "optional" not in reason
    answer = await chat.submit({"because": "\u202enever"}, "U0OLGA")
    assert "U+202E" in answer.json["errors"]["because"]
    answer = await chat.submit({"because": "not during the audit"}, "U0STAN")
    assert "Those who can: Adam Admin, Olga Owner" in answer.json["errors"]["because"]
    answer = await chat.submit({"because": "not during the audit"}, "U0OLGA")
    assert answer.body == b""
    assert chat.run().state is State.DENIED
    assert "Olga Owner denied it: not during the audit" in chat.slack.card.words
    assert chat.harness.fleet.sent == []


async def test_approve_command_with_the_digest_approves_the_run(chat: Chat):
    await chat.type(LAMP_ON)
    digest = chat.run().short_digest
    answer = await chat.type(f"approve 1 {digest}", "U0OLGA")
    assert answer.text == "You approved run 1."
    assert chat.run().state is State.SUCCEEDED


async def test_approve_command_needs_the_digest_of_the_current_plan(chat: Chat):
    await chat.type(LAMP_ON)
    assert "is not that of the plan" in (await chat.type("approve 1 0123456789", "U0OLGA")).text
    shown = await chat.type("approve 1", "U0OLGA")
    assert "Needs approval" in shown.text
    assert f"approve 1 {chat.run().short_digest}" in shown.body.decode()
    assert chat.run().state is State.PENDING


async def test_approval_click_after_the_decision_names_the_approver(chat: Chat):
    await chat.type(LAMP_ON)
    approve = chat.slack.card.buttons["approve"]["value"]
    await chat.press("approve", "U0OLGA")
    await chat.press("approve", "U0ADAM", value=approve)
    assert "approved by olga owner" in chat.slack.whispers("U0ADAM")[0].words.lower()
    assert chat.harness.fleet.sent == [("lb1", "set lamp on")]


async def test_double_click_on_approve_is_one_approval(chat: Chat):
    await chat.type(LAMP_ON)
    await asyncio.gather(chat.press("approve", "U0OLGA"), chat.press("approve", "U0OLGA"))
    assert chat.harness.list_entry_kinds(chat.run()).count("approved") == 1
    assert chat.harness.fleet.sent == [("lb1", "set lamp on")]


@pytest.mark.parametrize(
    "value",
    ["", "1", "1:", "1:0123456789", "2:{digest}", "1:{digest}0", "1:{digest}\n", "١:{digest}"],
)
@pytest.mark.parametrize("action", ["approve", "deny"])
async def test_forged_button_value_decides_nothing(chat: Chat, value: str, action: str):
    await chat.type(LAMP_ON)
    forged = value.format(digest=chat.run().short_digest)
    await chat.press(action, "U0OLGA", value=forged)
    assert chat.run().state is State.PENDING
    assert len(chat.slack.whispers("U0OLGA")) == 1


@pytest.mark.parametrize("moved", ["channel", "ts"])
async def test_approve_button_copied_to_another_message_decides_nothing(chat: Chat, moved: str):
    await click_copied_button(chat, moved)
    assert chat.run().state is State.PENDING


async def test_without_the_message_check_a_copied_button_approves(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    def skip_message_check(_: DecisionHandler, click: ButtonClick) -> tuple[int, str]:
        """Look at no message."""
        return parse_button_value(click)

    monkeypatch.setattr(DecisionHandler, "check_click", skip_message_check)
    await click_copied_button(chat, "ts")
    assert chat.run().state is State.SUCCEEDED


async def click_copied_button(chat: Chat, moved: str) -> None:
    """Send the click of an owner on a button that was copied to another message."""
    await chat.type(LAMP_ON)
    card = chat.slack.card
    place = {"channel": card.channel, "ts": card.ts} | {moved: "C0OTHER"}
    value = card.buttons["approve"]["value"]
    payload = payloads.click("approve", value, "U0OLGA", **place)
    await chat.send(payloads.interaction(payload))
    await chat.settle()


async def test_withdraw_command_withdraws_the_run_of_its_requester(chat: Chat):
    await chat.type(LAMP_ON)
    assert "withdrew" in (await chat.type("withdraw 1")).text
    assert chat.run().state is State.WITHDRAWN
    assert [one for one in chat.slack.posted if one.thread] == []


async def test_undo_command_requests_approval_and_keeps_its_ticket(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("approve", "U0OLGA")
    await chat.type("undo 1 because it is day again")
    card = chat.slack.posted[-1]
    assert card.buttons["approve"]["text"]["text"] == "Approve"
    assert "undo of run 1" in card.text
    await chat.press("approve", "U0OLGA", message=card)
    assert chat.harness.fleet.sent == [("lb1", "set lamp on"), ("lb1", "set lamp off")]
    await chat.type(LAMP_ON)
    await chat.press("approve", "U0OLGA", message=chat.slack.posted[-1])
    require_unreachable_tickets(chat.harness.policies.path)
    await chat.type("undo 3 ticket=CHG7")
    await chat.type("undo person dora since 1h ticket=CHG8")
    assert [chat.run(number).ticket for number in (4, 5)] == ["CHG7", "CHG8"]


async def test_policy_refusal_is_shown_to_the_requester_only(chat: Chat):
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(
        rules.read_text()
        + '@id("no toys")@description("Toys rest in winter.")\n'
        + 'forbid (principal, action == Action::"request", resource);\n'
    )
    answer = await chat.type(LAMP_ON)
    assert "Toys rest in winter." in answer.text
    assert answer.json["response_type"] == "ephemeral"
    assert chat.slack.posted == []


async def test_request_without_changes_is_reported_to_the_requester_only(chat: Chat):
    await chat.type("toy set lb1 lamp off")
    [whisper] = chat.slack.posted
    assert (whisper.seen_by, whisper.channel) == ("U0DORA", "C0OPS")
    assert whisper.text == "Run 1 · No changes: toy set lb1 lamp off (the edge) – lamp is off"


async def test_approve_button_is_primary_and_deny_button_is_plain(chat: Chat):
    await chat.type(LAMP_ON)
    approve = chat.slack.card.buttons["approve"]
    assert approve["text"]["text"] == "Approve"
    assert approve["style"] == "primary"
    assert "confirm" not in approve
    assert "style" not in chat.slack.card.buttons["deny"]


async def test_irreversible_change_is_requested_only_after_its_requester_confirms_the_plan(
    chat: Chat,
):
    await chat.type("toy break lb1 lamp because it flickers")
    [plan] = chat.slack.whispers("U0DORA")
    assert "Cannot be undone" in plan.words
    assert "Not requested yet" in plan.words
    assert plan.buttons["submit"]["text"]["text"] == "Request approval all the same"
    assert chat.run().state is State.PLANNED
    assert chat.slack.posted == [plan]
    await chat.press("submit", "U0DORA", message=plan)
    assert (plan.buttons, plan.words) == ({}, "Run 1 is requested. Its card shows the progress.")
    [card] = [one for one in chat.slack.posted if not one.seen_by]
    assert "cannot be undone" in card.buttons["approve"]["confirm"]["text"]["text"]
    assert "Cannot be undone" in card.words
    assert chat.run().reason == "it flickers"


async def test_withdrawn_plan_cannot_be_requested(chat: Chat):
    await chat.type("toy break lb1 lamp")
    [plan] = chat.slack.whispers("U0DORA")
    await chat.press("submit", "U0OLGA", message=plan)
    assert "Only Dora Developer" in chat.slack.whispers("U0OLGA")[0].words
    submit = plan.buttons["submit"]["value"]
    await chat.press("withdraw-plan", "U0DORA", message=plan)
    assert chat.run().state is State.WITHDRAWN
    assert (plan.buttons, plan.words) == ({}, "Plan 1 is withdrawn. Nothing was requested.")
    # Someone clicked twice before the message changed; and Slack may not replace it any more.
    await chat.press("submit", "U0DORA", message=plan, value=submit)
    assert chat.run().state is State.WITHDRAWN
    assert "cannot be re-planned" in plan.words
    chat.slack.refuse("response_url", "used_url", status=404)
    await chat.press("submit", "U0DORA", message=plan, value=submit)
    assert "cannot be re-planned" in chat.slack.whispers("U0DORA")[-1].words
    assert chat.slack.whispers("U0DORA")[-1] is not plan


async def test_plan_that_is_irreversible_on_the_host_needs_confirmation_by_its_requester(
    chat: Chat,
):
    await chat.type("toy melt lb1 lamp")
    [plan] = chat.slack.posted
    assert (plan.seen_by, chat.run().state) == ("U0DORA", State.PLANNED)
    assert "Cannot be undone" in plan.words
    assert chat.harness.fleet.sent == []
    await chat.press("submit", "U0DORA", message=plan)
    assert chat.run().state is State.PENDING
    await chat.press("approve", "U0OLGA", message=chat.slack.posted[-1])
    assert chat.run().state is State.SUCCEEDED


async def test_plan_command_shows_the_plan_to_its_requester_who_requests_it_by_button(chat: Chat):
    await chat.type("plan toy set lb1 lamp on")
    [plan] = chat.slack.posted
    assert plan.seen_by == "U0DORA"
    for expected in ("set lamp on", "set lamp off", "It needs 1 approval from the owners"):
        assert expected in plan.words
    # The host changes: the plan is computed again, and nothing is requested.
    with chat.harness.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, 1), expires_at=tx.now - 1)
    await chat.press("submit", "U0DORA", message=plan)
    assert chat.slack.posted == [plan]
    assert plan.buttons["submit"]["value"].startswith("2:")
    await chat.press("submit", "U0DORA", message=plan)
    assert chat.run(2).state is State.PENDING
    assert "is a check" in (await chat.type("plan toy show lb1")).text


async def test_undo_button_shows_the_plan_of_the_undo_before_requesting_it(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("approve", "U0OLGA")
    await chat.press("undo", "U0DORA")
    [form] = chat.slack.views.values()
    assert form["title"]["text"] == "Plan 2"
    assert form["submit"]["text"] == "Request approval"
    await chat.submit({"because": "it is day again"}, "U0DORA")
    assert chat.run(2).state is State.PENDING
    assert (chat.run(2).undo_of, chat.run(2).reason) == (1, "it is day again")


async def test_commands_button_opens_a_view_with_the_commands_of_the_run(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("approve", "U0OLGA")
    assert "set lamp off" not in chat.slack.card.words
    await chat.press("commands", "U0STAN")
    [view] = chat.slack.views.values()
    assert "set lamp off" in str(view["blocks"])


async def test_withdraw_button_works_for_the_requester_only(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("withdraw", "U0OLGA")
    assert chat.run().state is State.PENDING
    await chat.press("withdraw", "U0DORA")
    assert chat.run().state is State.WITHDRAWN


async def test_expired_run_is_replanned_by_its_requester_only(chat: Chat):
    await chat.type(LAMP_ON)
    with chat.harness.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, 1), expires_at=tx.now - 1)
    chat.harness.service.advancer.expire_runs()
    await chat.settle()
    card = chat.slack.card
    await chat.press("replan", "U0OLGA", message=card)
    assert "who requested it" in chat.slack.whispers("U0OLGA")[0].words
    await chat.press("replan", "U0DORA", message=card)
    assert chat.run(2).state is State.PENDING
    assert chat.run(2).replan_of == 1


async def test_request_without_a_valid_policy_is_refused(chat: Chat):
    (chat.harness.policies.path / "areas.yaml").unlink()
    answer = await chat.type(LAMP_ON)
    assert "The policy is not valid" in answer.text
    assert chat.slack.posted == []


async def test_result_in_the_thread_shows_a_checkpoint_of_the_change_log(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    await chat.press("approve", "U0OLGA")
    with chat.harness.database.reading() as tx:
        last = change_log.list_entries_of_run(tx, 1)[-1]
        point = change_log.get_checkpoint_after(tx, last.seq)
    assert point is not None
    [result] = [one for one in chat.slack.posted if one.thread]
    assert f"log {point.size} {point.root[:12]}" in result.words
    await chat.press("commands", "U0STAN")
    assert f"log {point.size} {point.root[:12]}" in str(list(chat.slack.views.values())[-1])


async def test_run_is_approved_for_a_time_by_the_menu_and_held_by_its_button(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("approve-later", "U0OLGA")
    [view] = chat.slack.views.values()
    assert view["title"]["text"] == "Approve run 1"
    with chat.harness.database.reading() as tx:
        in_two_hours = tx.now // 1_000_000 + 7200
    at = {"form-value": {"type": "datetimepicker", "selected_date_time": in_two_hours}}
    await chat.submit_state({"start": at}, "U0OLGA")
    card = chat.slack.card
    assert card.text.startswith("Run 1 · Starts later: toy set lb1 lamp on (the edge)")
    assert f"to start <!date^{in_two_hours}^" in card.words
    assert set(card.buttons) == {"hold", "withdraw", "stop", "watch", "commands"}
    assert chat.harness.fleet.sent == []
    await chat.press("hold", "U0OLGA")
    assert chat.run().state is State.PENDING
    assert set(chat.slack.card.buttons) == PENDING_BUTTONS


async def test_run_is_approved_for_a_time_and_held_by_typing(chat: Chat):
    await chat.type(LAMP_ON)
    digest = chat.run().short_digest
    past = await chat.type(f"approve 1 {digest} at 1999-01-01", "U0OLGA")
    assert "has passed already" in past.text
    wrong = await chat.type(f"approve 1 {digest} at midday or so", "U0OLGA")
    assert "is not a time" in wrong.text
    assert chat.run().state is State.PENDING
    done = await chat.type(f"approve 1 {digest} at 2 hours because of the sale", "U0OLGA")
    assert "You approved run 1 to start at" in done.text
    held = await chat.type("hold 1 because the sale began", "U0DORA")
    assert "You held run 1. It needs its approvals again." in held.text
    assert chat.run().state is State.PENDING
    assert chat.harness.fleet.sent == []


@pytest.mark.parametrize(
    "given",
    [
        {"type": "datetimepicker", "selected_date_time": None},
        {"type": "datetimepicker", "selected_date_time": 10**30},
        {"type": "plain_text_input", "value": "tonight"},
    ],
)
async def test_form_for_a_later_start_approves_nothing_without_its_time(
    chat: Chat, given: dict[str, Any]
):
    await chat.type(LAMP_ON)
    await chat.press("approve-later", "U0OLGA")
    answer = await chat.submit_state({"start": {"form-value": given}}, "U0OLGA")
    assert answer.json["errors"] == {"start": "Choose a day and a time."}
    assert (chat.run().state, chat.harness.fleet.sent) == (State.PENDING, [])


async def test_typed_start_may_name_its_time_zone_and_other_words_are_refused(chat: Chat):
    await chat.type(LAMP_ON)
    approve = f"approve 1 {chat.run().short_digest}"
    zoned = await chat.type(f"{approve} at 2999-01-01 14:30 Europe/Paris", "U0OLGA")
    assert "2999-01-01 13:30 UTC is too late" in zoned.text
    other = await chat.type(f"{approve} tomorrow", "U0OLGA")
    assert "'tomorrow' is not expected behind the plan" in other.text
    untold = await chat.type(f"{approve} at", "U0OLGA")
    assert "is not a time" in untold.text
    unplanned = await chat.type("approve 1 at tomorrow 22:00", "U0OLGA")
    assert "'at' is not a plan" in unplanned.text
    assert chat.run().state is State.PENDING
