"""Reminders and escalations of pending approvals in Slack."""

from pathlib import Path

import pytest

from bot.db import runs
from bot.model.run import Run, State
from tests.bot.harness import open_harness
from tests.bot.slack.chat import PENDING_BUTTONS, Chat, open_chat
from tests.bot.slack.json_walk import list_mentions

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on"
MINUTE = 60_000_000

RULES = """
@id("approve") permit (principal, action in [Action::"approve", Action::"view"], resource);
@id("ask") @approvals("1") @from("owners") {notes}
permit (principal, action == Action::"request", resource);
"""


async def _remind_after(chat: Chat, minutes: int) -> Run:
    """Let the request have waited for so long, and let the clock do its work."""
    with chat.harness.database.transaction() as tx:
        run = runs.lock_run(tx, 1)
        runs.amend_run(tx, run, pending_since=tx.now - minutes * MINUTE)
    chat.harness.service.advancer.remind_approvers()
    await chat.settle()
    return chat.run()


async def test_reminder_is_sent_once_to_each_approver(chat: Chat):
    await chat.type(LAMP_ON)
    before = len(chat.slack.seen_in("C0OPS"))
    await _remind_after(chat, 31)
    await _remind_after(chat, 40)
    messages = chat.slack.seen_in("C0OPS")
    assert len(messages) == before + 1
    assert "Run 1 · Your approval is still needed: toy set lb1 lamp on" in messages[-1].words
    assert "Adam Admin, Olga Owner" in messages[-1].words
    # The copies of the card ring; a mention beside them would ring twice.
    assert list_mentions(messages[-1].blocks) == []
    assert len(chat.slack.seen_in("D0ADAM")) == len(chat.slack.seen_in("D0OLGA")) == 1


async def test_escalation_notifies_the_next_group_which_can_then_approve(tmp_path: Path):
    notes = '@remind("10m") @escalate("area:storage")'
    with open_harness(tmp_path, rules=RULES.format(notes=notes)) as harness:
        async with open_chat(harness) as chat:
            await chat.type(LAMP_ON)
            await _remind_after(chat, 11)
            await _remind_after(chat, 21)
            last = chat.slack.seen_in("C0OPS")[-1]
            assert "the owners of the edge or the owners of storage can now approve" in last.words
            [copy] = chat.slack.seen_in("D0STAN")
            await chat.press("approve", "U0STAN", message=copy)
            assert chat.run().state is State.SUCCEEDED


async def test_approve_button_opens_a_form_when_the_rule_requires_a_reason(tmp_path: Path):
    with open_harness(tmp_path, rules=RULES.format(notes='@reason("required")')) as harness:
        async with open_chat(harness) as chat:
            refused = await chat.type(LAMP_ON)
            assert "requires a reason" in refused.text
            await chat.type(f"{LAMP_ON} because it is dark")
            card = chat.slack.card
            assert set(card.buttons) == PENDING_BUTTONS - {"approve"} | {"approve-reason"}
            assert card.buttons["approve-reason"]["text"]["text"] == "Approve…"
            await chat.press("approve-reason", "U0OLGA")
            assert chat.run().state is State.PENDING
            await chat.submit({"because": "I saw it"}, "U0OLGA")
            assert chat.run().state is State.SUCCEEDED
