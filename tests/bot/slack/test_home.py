"""The Home tab: pending approvals, questions, plans and recent runs of one person."""

import asyncio
import itertools
import json
from typing import Any

import pytest

from bot.db import home_queue
from bot.model.run import State
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat
from tests.bot.slack.json_walk import list_texts
from tests.bot.web.sample_runs import add_sample_runs
from tests.policies import get_signed_rules
from tests.toy import SetSwitch

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on because the cellar is dark"
_numbers = itertools.count(1)


async def open_home(chat: Chat, user: str) -> dict[str, Any]:
    """Open the Home tab."""
    raw = payloads.event(f"Ev{next(_numbers)}", user=user, tab="home")
    answer = await chat.send(raw)
    assert answer.status == 200
    await chat.settle()
    return chat.slack.views[user]


def words(view: dict[str, Any]) -> str:
    return " ".join(list_texts(view["blocks"]))


def buttons(view: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rows = [block for block in view["blocks"] if block["type"] == "actions"]
    return {one["action_id"]: one for row in rows for one in row["elements"]}


async def click(chat: Chat, action: str, value: str, user: str) -> None:
    payload = payloads.click(action, value, user, channel="C0OPS", ts="1.1")
    for gone in ("channel", "message", "response_url"):
        del payload[gone]
    payload["container"] = {"type": "view", "view_id": "V0HOME"}
    payload["view"] = payloads.a_view({"id": "V0HOME", "type": "home", "blocks": []})
    await chat.send(payloads.interaction(payload))
    await chat.settle()


def make_homes_due(chat: Chat) -> None:
    with chat.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql(
            "UPDATE slack_home SET rendered_at = 0, due_at = 0 WHERE due_at IS NOT NULL"
        )


async def test_home_tab_shows_pending_approvals_with_working_buttons(chat: Chat):
    await chat.type(LAMP_ON)
    view = await open_home(chat, "U0OLGA")
    assert "Needs your approval · 1" in words(view)
    for text in (
        "🟡 Run 1 · Needs approval: toy set lb1 lamp on",
        "set lamp on",
        "the cellar is dark",
    ):
        assert text in words(view)
    approve = buttons(view)["approve"]
    await click(chat, "approve", approve["value"], "U0OLGA")
    assert chat.run().state is State.SUCCEEDED
    make_homes_due(chat)
    await chat.settle()
    shown = words(chat.slack.views["U0OLGA"])
    assert "No requests need your approval." in shown
    assert "Recent changes" in shown
    assert "Approved by Olga Owner" in chat.slack.card.words


async def test_home_tab_has_no_decision_buttons_for_people_who_cannot_approve(chat: Chat):
    await chat.type(LAMP_ON)
    for user in ("U0DORA", "U0STAN"):
        assert set(buttons(await open_home(chat, user))) == {"ask-0"}
    view = chat.slack.views["U0DORA"]
    assert "Needs approval: " in words(view)
    assert "/keyturn withdraw 1" in words(view)


async def test_home_tab_shows_checks_with_the_label_of_their_cards(chat: Chat):
    await chat.type("toy show lb1")
    chat.harness.fleet.hosts["lb1"]["lamp"] = "broken"
    await chat.type("toy show lb2")
    await chat.type("toy show lb1")
    shown = words(await open_home(chat, "U0DORA"))
    assert "Needs attention: toy show lb1" in " ".join(shown.split())
    assert "Succeeded: toy show lb2" in " ".join(shown.split())


async def test_approval_click_on_the_home_tab_needs_the_right_and_the_digest(chat: Chat):
    await chat.type(LAMP_ON)
    value = buttons(await open_home(chat, "U0OLGA"))["approve"]["value"]
    await click(chat, "approve", value, "U0STAN")
    assert chat.run().state is State.PENDING
    [message] = chat.slack.seen_in("D0STAN")
    assert "Those who can: Adam Admin, Olga Owner" in message.words
    await click(chat, "approve", "1:0123456789", "U0OLGA")
    assert chat.run().state is State.PENDING


async def test_home_tab_is_updated_only_for_people_concerned_by_a_new_run(chat: Chat):
    await open_home(chat, "U0OLGA")
    await open_home(chat, "U0STAN")
    before = chat.slack.views["U0STAN"]
    await chat.type(LAMP_ON)
    make_homes_due(chat)
    await chat.settle()
    assert "Needs your approval · 1" in words(chat.slack.views["U0OLGA"])
    assert chat.slack.views["U0STAN"] is before


async def test_home_tab_is_published_once_for_several_changes(chat: Chat):
    await open_home(chat, "U0OLGA")
    for name in ("lamp", "fan"):
        await chat.type(f"toy set lb1 {name} on")
    published = [args for call, args in chat.slack.calls if call == "views.publish"]
    assert len(published) == 1
    make_homes_due(chat)
    await chat.settle()
    published = [args for call, args in chat.slack.calls if call == "views.publish"]
    assert len(published) == 2
    assert "Needs your approval · 2" in words(chat.slack.views["U0OLGA"])


async def test_home_tab_is_not_published_again_without_changes(chat: Chat):
    await open_home(chat, "U0OLGA")
    await open_home(chat, "U0OLGA")
    assert [call for call, _ in chat.slack.calls].count("views.publish") == 1


async def test_home_tab_is_rendered_with_the_state_at_the_time_of_publishing(chat: Chat):
    for user in ("U0OLGA", "U0ADAM"):
        await open_home(chat, user)
    with chat.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE slack_home SET digest = '', due_at = 0")
    chat.slack.calls.clear()
    chat.slack.slowly = 0.5
    # It is woken more than once meanwhile.
    drawing = [asyncio.create_task(chat.door.home_tabs.draw_due_homes()) for _ in range(2)]
    while not _list_published_homes(chat):
        await asyncio.sleep(0.005)
    await asyncio.to_thread(chat.harness.request, SetSwitch(host="lb1", name="lamp", value="on"))
    await asyncio.gather(*drawing)
    first, second = _list_published_homes(chat)
    assert ("the edge" in first, "the edge" in second) == (False, True)


def _list_published_homes(chat: Chat) -> list[str]:
    return [json.dumps(args) for call, args in chat.slack.calls if call == "views.publish"]


async def test_home_tab_waits_after_a_slack_rate_limit(chat: Chat):
    chat.slack.refuse("views.publish", "ratelimited", status=429, retry_after=9)
    raw = payloads.event("EvPeace", user="U0OLGA", tab="home")
    await chat.send(raw)
    await chat.settle()
    assert "U0OLGA" not in chat.slack.views
    with chat.harness.database.reading() as tx:
        assert home_queue.list_due_homes(tx) == []
    make_homes_due(chat)
    await chat.settle()
    assert "U0OLGA" in chat.slack.views


async def test_home_tab_of_an_unknown_account_explains_why_it_is_empty(chat: Chat):
    view = await open_home(chat, "U0NOBODY")
    assert "does not know your Slack account" in words(view)


async def test_home_tab_opens_the_runbook_search_and_answers_privately(chat: Chat):
    ask = buttons(await open_home(chat, "U0DORA"))["ask-0"]
    await click(chat, "ask-0", ask["value"], "U0DORA")
    [form] = [view for name, view in chat.slack.views.items() if name.startswith("V")]
    assert form["callback_id"] == "chooser"
    # What is asked there is answered to that person alone.
    assert '"channel": "D0DORA"' in form["private_metadata"]


async def test_counter_proposal_is_accepted_on_the_home_tab(chat: Chat):
    await chat.type("toy tune lb1 lamp dim because the cellar is dark")
    await chat.type("counter 1 how=on because dim is not enough", "U0OLGA")
    view = await open_home(chat, "U0DORA")
    for text in ("Waiting for you · 1", "dim → on", "dim is not enough", "set lamp on"):
        assert text in words(view)
    assert {"accept", "withdraw"} <= set(buttons(view))
    await click(chat, "accept", buttons(view)["accept"]["value"], "U0DORA")
    assert chat.run(2).state is State.PENDING
    assert chat.run(1).state is State.SUPERSEDED


async def test_questions_and_assigned_runs_come_first_on_the_home_tab(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.type("toy set lb2 lamp on")
    await chat.type("question 1 which ticket?", "U0OLGA")
    await chat.type("reassign 2 adam because it is yours", "U0OLGA")
    view = await open_home(chat, "U0DORA")
    assert "Waiting for you · 1" in words(view)
    assert "Olga Owner asked: which ticket?" in " ".join(words(view).split())
    await click(chat, "answer", buttons(view)["answer"]["value"], "U0DORA")
    await chat.submit({"because": "4711"}, "U0DORA")
    assert "Waiting for you" not in words(await open_home(chat, "U0DORA"))
    reply = words(await open_home(chat, "U0ADAM"))
    assert reply.index("toy set lb2 lamp on") < reply.index("toy set lb1 lamp on")
    assert "Assigned to Adam Admin" in reply


async def test_plan_is_reviewed_and_withdrawn_on_the_home_tab(chat: Chat):
    await chat.type("plan toy set lb1 lamp on")
    view = await open_home(chat, "U0DORA")
    assert "Planned: toy set lb1 lamp on" in " ".join(words(view).split())
    await click(chat, "review-plan", buttons(view)["review-plan"]["value"], "U0DORA")
    [form] = [one for one in chat.slack.views.values() if one["type"] == "modal"]
    assert form["submit"]["text"] == "Request approval"
    # The same word as on the page of the plan, and as the state that follows.
    assert buttons(view)["withdraw-plan"]["text"]["text"] == "Withdraw"
    await click(chat, "withdraw-plan", buttons(view)["withdraw-plan"]["value"], "U0DORA")
    assert chat.run().state is State.WITHDRAWN
    assert "Waiting for you" not in words(await open_home(chat, "U0OLGA"))


async def test_plan_that_waits_for_a_signature_is_on_the_home_of_who_signs_it(chat: Chat):
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(get_signed_rules("both"))
    await chat.type(LAMP_ON)
    view = await open_home(chat, "U0DORA")
    assert "Waiting for you · 1" in words(view)
    assert "First the requester signs this plan" in words(view)
    assert buttons(view)["sign"]["url"].endswith("/runs/1/sign")
    view = await open_home(chat, "U0OLGA")
    assert "No requests need your approval." in words(view)
    assert "approve" not in buttons(view)


async def test_run_with_an_unknown_outcome_is_on_the_home_of_who_resolves_it(chat: Chat):
    number = add_sample_runs(chat.harness.database)["unknown"]
    assert f"keyturn run resolve {number}" in words(await open_home(chat, "U0OLGA"))
    # Stan owns other areas.
    assert "keyturn run resolve" not in words(await open_home(chat, "U0STAN"))
