"""Break-glass and second factors in Slack."""

import re
from collections.abc import AsyncIterator

import pytest

from bot.model.run import State
from tests.bot.authenticator_app import enrol_and_step_up
from tests.bot.harness import Harness
from tests.bot.slack.chat import PENDING_BUTTONS, Chat, open_chat
from tests.bot.slack.json_walk import list_mentions
from tests.policies import get_signed_rules, get_starter_rules
from tests.ticket_system import require_unreachable_tickets

pytestmark = pytest.mark.anyio
BREAK = "break-glass toy set web1 lamp on because all customers see an error page"


@pytest.fixture
async def chat_with_alarms(harness: Harness, anyio_backend: str) -> AsyncIterator[Chat]:
    """Chat in which the web servers have a channel of their own, and alarms another."""
    areas = harness.policies.path / "areas.yaml"
    areas.write_text(areas.read_text().replace("web: {", "web: {channel: C0WEB, "))
    harness.fleet.hosts["web1"] = {"lamp": "off"}
    async with open_chat(harness, default_channel="C0ALARM") as chat:
        chat.slack.channels |= {"C0WEB", "C0ALARM"}
        yield chat


async def test_plan_that_needs_a_second_factor_has_no_approve_button_in_slack(chat: Chat) -> None:
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(get_starter_rules().replace('@approvals("1")', '@approvals("1")\n@stepup', 1))
    await chat.type("toy set lb1 lamp on")
    assert set(chat.slack.card.buttons) == PENDING_BUTTONS - {"approve", "approve-later"}
    assert "This plan needs a second factor. Approve it on" in chat.slack.card.words
    digest = chat.run().short_digest
    answer = await chat.type(f"approve 1 {digest}", "U0OLGA")
    assert "approve it on its web page" in answer.text
    # A button that somebody made up does no more.
    await chat.press("approve", "U0OLGA", value=f"1:{digest}")
    assert chat.run().state is State.PENDING
    assert chat.harness.fleet.sent == []
    await chat.deny("U0OLGA")
    assert chat.run().state is State.DENIED


async def test_plan_that_needs_signatures_has_a_button_to_sign_in_slack(chat: Chat) -> None:
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(get_signed_rules("approver"))
    await chat.type("toy set lb1 lamp on")
    assert set(chat.slack.card.buttons) == PENDING_BUTTONS - {"approve", "approve-later"} | {
        "sign"
    }
    words = " ".join(chat.slack.card.words.split())
    assert "An approver signs this plan, on its page, or in a terminal by keyturn sign 1" in words
    # Slack opens the page itself, and reports the press.
    await chat.press("sign", "U0OLGA")
    assert chat.run().state is State.PENDING
    digest = chat.run().short_digest
    answer = await chat.type(f"approve 1 {digest}", "U0OLGA")
    assert "takes your signature over its plan" in answer.text
    await chat.press("approve", "U0OLGA", value=f"1:{digest}")
    assert chat.run().state is State.PENDING
    assert chat.harness.fleet.sent == []


async def test_break_glass_for_an_irreversible_change_needs_no_confirmation_in_slack(
    chat_with_alarms: Chat,
) -> None:
    enrol_and_step_up(chat_with_alarms.harness, "adam")
    await chat_with_alarms.type(
        BREAK.replace("toy set web1 lamp on", "toy melt web1 lamp"), "U0ADAM"
    )
    assert chat_with_alarms.run().state is State.PENDING


async def test_break_glass_is_announced_once_and_reviewed_by_another_person(
    chat_with_alarms: Chat,
) -> None:
    app = enrol_and_step_up(chat_with_alarms.harness, "adam")
    answer = await chat_with_alarms.type(BREAK, "U0ADAM")
    assert "Confirm break-glass for run 1 on its page" in answer.text
    assert re.search(rb"/sign-in/[^\"?]+\?next=/runs/1", answer.body)
    assert "Adam Admin requests break-glass" in chat_with_alarms.slack.posted[0].words
    assert chat_with_alarms.harness.fleet.sent == []

    run = chat_with_alarms.run()
    chat_with_alarms.harness.service.break_glass.activate_break_glass(
        run.id,
        person="adam",
        session=app.session,
        digest=run.digest,
        reason="all customers see an error page",
    )
    await chat_with_alarms.settle()
    await chat_with_alarms.settle()

    assert chat_with_alarms.run().state is State.SUCCEEDED
    alarms = [
        one
        for one in chat_with_alarms.slack.posted
        if one.text.startswith("Run 1 · Adam Admin used break-glass")
    ]
    assert sorted(one.channel for one in alarms) == ["C0ALARM", "C0WEB", "D0OLGA"]
    for alarm in alarms:
        assert "all customers see an error page" in alarm.words
        assert "U0OLGA" in list_mentions(alarm.blocks)
    assert "Adam Admin used break-glass" in chat_with_alarms.slack.posted[0].words

    refused = await chat_with_alarms.type("review 1 it was right, I have looked", "U0ADAM")
    assert "nother person has to review" in refused.text
    await chat_with_alarms.type("review 1 it was right, I have looked", "U0OLGA")
    assert (
        "Reviewed by Olga Owner: it was right, I have looked"
        in chat_with_alarms.slack.posted[0].words
    )


async def test_break_glass_alarm_reaches_other_channels_when_one_is_archived(
    chat_with_alarms: Chat,
) -> None:
    app = enrol_and_step_up(chat_with_alarms.harness, "adam")
    await chat_with_alarms.type(BREAK, "U0ADAM")
    run = chat_with_alarms.run()
    chat_with_alarms.harness.service.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=run.reason
    )
    chat_with_alarms.slack.refuse("chat.postMessage", "is_archived")
    await chat_with_alarms.settle()
    alarms = [
        one
        for one in chat_with_alarms.slack.posted
        if one.text.startswith("Run 1 · Adam Admin used break-glass")
    ]
    assert sorted(one.channel for one in alarms) == ["C0ALARM", "D0OLGA"]


async def test_break_glass_with_a_short_reason_is_refused_before_any_request(
    chat_with_alarms: Chat,
) -> None:
    for typed in (
        "break-glass toy set web1 lamp on",
        "break-glass toy set web1 lamp on because x",
    ):
        answer = await chat_with_alarms.type(typed, "U0ADAM")
        assert "at least 20 characters" in answer.text
    answer = await chat_with_alarms.type(
        "break-glass because all customers see an error page", "U0ADAM"
    )
    assert "The runbook is missing" in answer.text
    assert chat_with_alarms.harness.list_entry_kinds() == []


async def test_break_glass_needs_no_change_ticket(chat_with_alarms: Chat) -> None:
    rule = "administrators request other changes"
    require_unreachable_tickets(
        chat_with_alarms.harness.policies.path, rule, "developers request, owners approve"
    )
    app = enrol_and_step_up(chat_with_alarms.harness, "adam")
    ordinary = await chat_with_alarms.type("toy set web1 lamp on", "U0ADAM")
    assert "requires an approved change ticket" in ordinary.text
    answer = await chat_with_alarms.type(BREAK, "U0ADAM")
    assert "Confirm break-glass for run 1 on its page" in answer.text
    assert chat_with_alarms.run().state is State.PLANNED
    chat_with_alarms.harness.service.break_glass.activate_break_glass(
        1,
        person="adam",
        session=app.session,
        digest=chat_with_alarms.run().digest,
        reason=chat_with_alarms.run().reason,
    )
    await chat_with_alarms.settle()
    assert chat_with_alarms.run().state is State.SUCCEEDED
    alarm = next(one for one in chat_with_alarms.slack.posted if one.channel == "C0ALARM")
    assert "Adam Admin used break-glass" in alarm.words
    refused = await chat_with_alarms.type(BREAK, "U0DORA")
    assert "The policy does not allow you break-glass" in refused.text
    assert "The policy requires an approved change ticket: name it in" in refused.text


async def test_break_glass_without_the_right_becomes_an_ordinary_request(
    chat_with_alarms: Chat,
) -> None:
    answer = await chat_with_alarms.type(BREAK, "U0DORA")
    assert "The policy does not allow you break-glass" in answer.text
    assert "Run 1 waits for approvals as usual" in answer.text
    assert chat_with_alarms.run().state is State.PENDING


async def test_break_glass_command_takes_the_number_of_a_pending_run(
    chat_with_alarms: Chat,
) -> None:
    await chat_with_alarms.type("toy set web1 lamp on", "U0ADAM")
    answer = await chat_with_alarms.type(
        "break-glass 1 because all customers see an error page", "U0ADAM"
    )
    assert "Confirm break-glass for run 1 on its page" in answer.text
    assert "requests break-glass" in chat_with_alarms.slack.posted[0].words


OWN_AREA = "break-glass toy melt lb1 lamp because all customers see an error page"


def allow_irreversible_break_glass(harness: Harness) -> None:
    """Let administrators use break-glass for irreversible changes too."""
    rules = harness.policies.path / "policy.cedar"
    text = rules.read_text()
    begin = text.index('@id("administrators use break-glass")')
    rest = text[begin:].replace(" && context.reversible", "", 1)
    rules.write_text(text[:begin] + rest)


async def test_one_break_glass_command_leads_to_the_page_of_an_irreversible_change_in_the_own_area(
    chat: Chat,
) -> None:
    """The approvals that it needs are known only with its plan."""
    allow_irreversible_break_glass(chat.harness)
    app = enrol_and_step_up(chat.harness, "olga")
    answer = await chat.type(OWN_AREA, "U0OLGA")
    assert b"open its page" in answer.body
    assert re.search(rb"/sign-in/[^\"?]+\?next=/runs/1", answer.body)
    run = chat.run()
    assert run.state is State.PENDING
    chat.harness.service.break_glass.activate_break_glass(
        1, person="olga", session=app.session, digest=run.digest, reason="all see an error page"
    )
    await chat.settle()
    assert chat.run().state is State.SUCCEEDED


async def test_break_glass_starts_a_shown_plan_that_was_not_requested(chat: Chat) -> None:
    allow_irreversible_break_glass(chat.harness)
    app = enrol_and_step_up(chat.harness, "olga")
    await chat.type("toy melt lb1 lamp", "U0OLGA")
    assert chat.run().state is State.PLANNED
    answer = await chat.type("break-glass 1 because all customers see an error page", "U0OLGA")
    assert re.search(rb"/sign-in/[^\"?]+\?next=/runs/1", answer.body)
    run = chat.run()
    chat.harness.service.break_glass.activate_break_glass(
        1, person="olga", session=app.session, digest=run.digest, reason="all see an error page"
    )
    await chat.settle()
    assert chat.run().state is State.SUCCEEDED


async def test_break_glass_command_runs_a_reversible_change_that_needs_no_approval(
    chat: Chat,
) -> None:
    because = "because all customers see an error page"
    answer = await chat.type(f"break-glass toy set lb1 lamp on {because}", "U0OLGA")
    assert b"If it needs no approval, it starts by itself" in answer.body
    assert chat.run().state is State.SUCCEEDED
    again = (await chat.type(f"break-glass 1 {because}", "U0OLGA")).text
    assert "Run 1 has succeeded: break-glass does not apply." in again


async def test_irreversible_change_without_approvals_is_confirmed_on_its_page_despite_break_glass(
    chat: Chat,
) -> None:
    rules = chat.harness.policies.path / "policy.cedar"
    text = rules.read_text().replace(" && context.reversible", "")
    rules.write_text(text.replace("context.reversible && ", ""))
    answer = await chat.type(OWN_AREA, "U0OLGA")
    assert b"open its page" in answer.body
    assert chat.run().state is State.PLANNED
    assert chat.harness.fleet.sent == []
    again = await chat.type("break-glass 1 because all customers see an error page", "U0OLGA")
    assert "Run 1 needs no approval and no freeze holds it" in again.text
    assert re.search(rb"/sign-in/[^\"?]+\?next=/runs/1", again.body)


async def test_break_glass_does_not_apply_to_a_check(chat: Chat):
    because = "because all customers see an error page"
    message = "Run 1 is read-only and needs no approval: it starts by"
    assert message in (await chat.type(f"break-glass toy show lb1 {because}", "U0DORA")).text
    assert chat.run().state is State.SUCCEEDED
    assert "break-glass requested" not in chat.harness.list_entry_kinds()
