"""Alerts are answered once, where the policy says so or a person asks, and run only checks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from sqlalchemy import select, update

from bot.audit import change_log, events
from bot.db import tables
from bot.features.alerts import rows
from bot.features.alerts.chat import SHORTCUT
from bot.model.run import Run, State
from bot.model.times import SECOND
from bot.slack.payloads import Account, MessageShortcut
from runbooks import load_catalogue
from tests.agents import AGENT_RULES, add_agent
from tests.bot.features.alerts import recorded
from tests.bot.features.alerts.chat_walk import post_answers
from tests.bot.harness import Harness
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat, open_chat
from tests.bot.slack.web_api import Posted

pytestmark = pytest.mark.anyio

TS = "1700000000.000001"
FIRING = recorded.ALERTMANAGER
AREAS = """\
areas:
  edge: {title: the edge, owners: [olga, adam], channel: C0OPS, alert_agent: triage-bot}
  web: {title: the web servers, owners: [olga], channel: C0WEB}
  storage: {title: storage, owners: [stan]}
"""


@pytest.fixture(autouse=True)
def toys_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy hosts have no history: only the toy runbooks read them."""
    monkeypatch.delitem(cast("dict[str, Any]", load_catalogue()), "host changes")


def ask_for_answers(harness: Harness, rules: str = AGENT_RULES) -> None:
    """Have alerts in the channel of the edge answered by an agent that the rules permit checks."""
    policy = harness.policies.path
    (policy / "areas.yaml").write_text(AREAS)
    (policy / "policy.cedar").write_text((policy / "policy.cedar").read_text() + rules)
    add_agent(harness)


@pytest.fixture
async def alerting(harness: Harness, anyio_backend: str) -> AsyncIterator[Chat]:
    ask_for_answers(harness)
    async with open_chat(harness) as chat:
        chat.slack.channels |= {"C0WEB", "C0ELSE"}
        yield chat


async def post(chat: Chat, raw: bytes) -> None:
    """Have a program's message delivered, and all that follows from it happen."""
    await chat.send(raw)
    await settle(chat)


async def settle(chat: Chat) -> None:
    await chat.settle()
    await post_answers(chat)


async def use_shortcut(
    chat: Chat,
    message: dict[str, Any] = FIRING,
    *,
    user: str = "U0DORA",
    channel: str = "C0OPS",
    ts: str = TS,
) -> str:
    """Choose the shortcut; return what the person is told at once."""
    chosen = payloads.message_action(SHORTCUT, "", user, channel=channel, ts=ts, message=message)
    await chat.send(payloads.interaction(chosen))
    await chat.settle()
    told = chat.slack.whispers(user)[-1].text
    await settle(chat)
    return told


def list_answers(chat: Chat) -> list[Posted]:
    return [one for one in chat.slack.posted if one.text.startswith("Found on")]


def list_runs(harness: Harness) -> list[Run]:
    with harness.database.reading() as tx:
        numbers = list(tx.sql.execute(select(tables.run.c.id).order_by(tables.run.c.id)).scalars())
    return [harness.get_run(number) for number in numbers]


# --- by itself ---


async def test_alert_in_a_channel_that_asks_for_it_is_answered_in_its_thread(
    alerting: Chat,
) -> None:
    await post(alerting, payloads.app_message(FIRING, ts=TS))
    [answer] = list_answers(alerting)
    assert (answer.channel, answer.thread) == ("C0OPS", TS)
    assert "toy show lb1" in answer.words
    assert "Read as triage-bot. Nothing was changed." in answer.words
    [run] = list_runs(alerting.harness)
    assert (run.kind, run.state, run.requested_by) == (
        "check",
        State.SUCCEEDED,
        "agent:triage-bot",
    )
    assert run.origin.source == "alert"
    # The check has no card of its own: the answer is the only message.
    assert alerting.slack.posted == [answer]


@pytest.mark.parametrize(
    ("message", "other"),
    [
        (recorded.ALERTMANAGER_RESOLVED, {}),
        ({"text": "[FIRING:1] ToyShow (lb9:9100)"}, {}),
        ({"text": "lb1 is a fine host"}, {}),
        # In another area's channel, and about a host of another area.
        (FIRING, {"channel": "C0WEB"}),
        ({"text": "[FIRING:1] ToyShow (web1)"}, {}),
        # An answer in a thread, a person, and Keyturn itself.
        (FIRING, {"thread_ts": "1690000000.000001"}),
        (FIRING, {"bot_id": "", "user": "U0DORA"}),
        (FIRING, {"app_id": "A0KEYTURN"}),
    ],
)
async def test_what_asks_for_no_answer_gets_none(
    alerting: Chat, message: dict[str, Any], other: dict[str, Any]
) -> None:
    raw = payloads.app_message(message, **{"channel": "C0OPS", **other})
    await post(alerting, raw)
    assert alerting.slack.posted == []
    assert list_runs(alerting.harness) == []


@pytest.mark.parametrize("missing", ["agent", "rule", "area", "pause"])
async def test_nothing_runs_without_agent_rule_and_area(
    harness: Harness, anyio_backend: str, missing: str
) -> None:
    ask_for_answers(harness, rules="" if missing == "rule" else AGENT_RULES)
    areas = harness.policies.path / "areas.yaml"
    if missing == "agent":
        areas.write_text(AREAS.replace("triage-bot", "other-bot"))
    if missing == "area":
        areas.write_text(AREAS.replace(", alert_agent: triage-bot", ""))
    if missing == "pause":
        harness.service.agents.pause_agent("triage-bot", person="olga", reason="a test")
    async with open_chat(harness) as chat:
        await post(chat, payloads.app_message(FIRING))
        assert chat.slack.posted == []
        assert list_runs(harness) == []


async def test_check_that_needs_an_approval_is_not_requested_by_itself(
    harness: Harness, anyio_backend: str
) -> None:
    name = '@id("agents run checks")'
    approved = AGENT_RULES.replace(name, f'{name}\n@approvals("1")\n@from("owners")')
    assert approved != AGENT_RULES
    ask_for_answers(harness, rules=approved)
    async with open_chat(harness) as chat:
        await post(chat, payloads.app_message(FIRING))
        assert list_runs(harness) == []


async def test_alert_is_answered_once_however_often_it_arrives(alerting: Chat) -> None:
    raw = payloads.app_message(FIRING, ts=TS)
    await post(alerting, raw)
    await post(alerting, raw)
    # Slack delivers it again by another id, and another process has it too.
    await post(alerting, payloads.app_message(FIRING, ts=TS))
    await post(alerting, payloads.changed_message(FIRING, ts=TS))
    assert "already" in await use_shortcut(alerting)
    assert "already" in await use_shortcut(alerting, user="U0OLGA")
    assert len(list_answers(alerting)) == 1
    assert len(list_runs(alerting.harness)) == 1


async def test_two_processes_post_one_answer(alerting: Chat) -> None:
    harness = alerting.harness
    async with open_chat(harness) as other:
        raw = payloads.app_message(FIRING, ts=TS)
        await asyncio.gather(alerting.send(raw), other.send(payloads.app_message(FIRING, ts=TS)))
        await alerting.settle()
        await other.settle()
        await asyncio.gather(settle(alerting), settle(other))
        assert len(list_answers(alerting)) + len(list_answers(other)) == 1
        assert len(list_runs(harness)) == 1


async def test_repeated_alert_about_the_same_is_answered_again_after_an_hour(
    alerting: Chat,
) -> None:
    for _ in range(3):
        await post(alerting, payloads.app_message(FIRING))
    assert len(list_answers(alerting)) == 1
    with alerting.harness.database.transaction() as tx:
        column = tables.alert_answer.c.claimed_at
        tx.sql.execute(update(tables.alert_answer).values(claimed_at=column - 3_601_000_000))
    await post(alerting, payloads.app_message(FIRING))
    assert len(list_answers(alerting)) == 2


async def test_storm_of_alerts_starts_few_checks(alerting: Chat) -> None:
    for number in range(40):
        text = f"[FIRING:1] ToyShow (lb1:9100)\n - pool = tank{number}"
        await alerting.send(payloads.app_message({"text": text}))
        await alerting.settle()
    await settle(alerting)
    assert len(list_runs(alerting.harness)) == 5
    assert len(list_answers(alerting)) == 5


async def test_answer_whose_process_died_is_posted_by_another(alerting: Chat) -> None:
    await alerting.send(payloads.app_message(FIRING, ts=TS))
    await alerting.settle()
    assert list_answers(alerting) == []
    async with open_chat(alerting.harness) as other:
        await settle(other)
        [answer] = list_answers(other)
        assert answer.thread == TS
    await settle(alerting)
    assert list_answers(alerting) == []


async def test_answer_whose_process_died_while_it_requested_checks_says_so(
    alerting: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(rows, "store_runs")
        await alerting.send(payloads.app_message(FIRING, ts=TS))
        await alerting.settle()
    assert len(list_runs(alerting.harness)) == 1
    with alerting.harness.database.transaction() as tx:
        tx.sql.execute(update(tables.alert_answer).values(due_at=0))
    async with open_chat(alerting.harness) as other:
        await settle(other)
        # It is posted once the longest wait for checks is over.
        assert list_answers(other) == []
        with alerting.harness.database.transaction() as tx:
            tx.sql.execute(update(tables.alert_answer).values(claimed_at=tx.now - 60 * SECOND))
        await settle(other)
        [answer] = list_answers(other)
    assert "it is not known which of them ran. See the runs of triage-bot." in answer.words
    assert "No check was run" not in answer.words


async def test_answer_that_slack_refuses_is_posted_later(alerting: Chat) -> None:
    alerting.slack.refuse("chat.postMessage", "ratelimited", status=429, retry_after=1)
    await post(alerting, payloads.app_message(FIRING))
    assert list_answers(alerting) == []
    with alerting.harness.database.transaction() as tx:
        tx.sql.execute(update(tables.alert_answer).values(due_at=0))
    await settle(alerting)
    assert len(list_answers(alerting)) == 1


async def test_answer_whose_acknowledgement_is_lost_is_not_posted_twice(alerting: Chat) -> None:
    alerting.slack.unheard = 1
    await post(alerting, payloads.app_message(FIRING))
    with alerting.harness.database.transaction() as tx:
        tx.sql.execute(update(tables.alert_answer).values(due_at=0))
    await settle(alerting)
    assert len(list_answers(alerting)) == 1
    with alerting.harness.database.reading() as tx:
        assert tx.sql.execute(select(tables.alert_answer.c.posted)).scalar_one()


# --- what it shows ---


async def test_answer_shows_what_changed_on_the_host(harness: Harness, anyio_backend: str) -> None:
    views = 'permit (principal is Agent, action == Action::"view", resource);'
    ask_for_answers(harness, rules=f"{AGENT_RULES}{views}\n")
    async with open_chat(harness) as chat:
        await chat.type("toy set lb1 lamp on because it is dark")
        await chat.press("approve", "U0OLGA")
        await chat.type("toy set lb2 lamp on because it is dark")
        await post(chat, payloads.app_message(FIRING, ts=TS))
        [answer] = list_answers(chat)
        assert "toy set lb1 lamp on, by Dora Developer: Succeeded" in answer.words
        assert "lb2" not in answer.words
        assert "not listed" not in answer.words


async def test_host_without_known_changes_is_said_to_have_none(
    harness: Harness, anyio_backend: str
) -> None:
    views = 'permit (principal is Agent, action == Action::"view", resource);'
    ask_for_answers(harness, rules=f"{AGENT_RULES}{views}\n")
    async with open_chat(harness) as chat:
        await post(chat, payloads.app_message(FIRING, ts=TS))
        [answer] = list_answers(chat)
        assert "Changed there in the last 6 h  · Nothing that Keyturn knows of." in answer.words


async def test_run_that_sent_nothing_is_no_change(harness: Harness, anyio_backend: str) -> None:
    views = 'permit (principal is Agent, action == Action::"view", resource);'
    ask_for_answers(harness, rules=f"{AGENT_RULES}{views}\n")
    async with open_chat(harness) as chat:
        await chat.type("toy set lb1 lamp on because it is dark")
        await post(chat, payloads.app_message(FIRING, ts=TS))
        [answer] = list_answers(chat)
        assert "Nothing that Keyturn knows of." in answer.words
        assert "toy set" not in answer.words


async def test_answer_says_how_far_back_a_long_log_was_searched(
    harness: Harness, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = 'permit (principal is Agent, action == Action::"view", resource);'
    ask_for_answers(harness, rules=f"{AGENT_RULES}{views}\n")
    async with open_chat(harness) as chat:
        await chat.type("toy set lb1 lamp on because it is dark")
        await chat.press("approve", "U0OLGA")
        monkeypatch.setattr("bot.queries.log_search._MAX_NEAREST_ENTRIES", 1)
        await post(chat, payloads.app_message(FIRING, ts=TS))
        [answer] = list_answers(chat)
    assert "toy set" not in answer.words
    assert "Nothing that Keyturn knows of." not in answer.words
    assert "The change log is long: the last" in answer.words


async def test_change_with_part_of_a_host_of_another_channel_is_said_to_be_left_out(
    harness: Harness, anyio_backend: str
) -> None:
    views = 'permit (principal is Agent, action == Action::"view", resource);'
    ask_for_answers(harness, rules=f"{AGENT_RULES}{views}\n")
    with harness.database.transaction() as tx:
        happened = events.ExternalEvent(source="deploys", title="shop", hosts=("lb1", "web1"))
        change_log.append_entry(tx, happened)
    async with open_chat(harness) as chat:
        await post(chat, payloads.app_message(FIRING, ts=TS))
        [answer] = list_answers(chat)
    assert "Changes that also concern other hosts are not listed here." in answer.words
    assert "web1" not in answer.words


async def test_button_opens_the_form_as_the_person_who_presses_it(alerting: Chat) -> None:
    text = "[FIRING:1] ServiceRestart (lb1)\n - service = nginx"
    await post(alerting, payloads.app_message({"text": text}, ts=TS))
    answers_to_it = list_answers(alerting)
    told = await use_shortcut(alerting, {"text": text}, user="U0OLGA", ts="1700000000.000009")
    assert "The answer comes in the thread" in told, told
    answer = [*answers_to_it, *list_answers(alerting)][-1]
    button = next(one for one in answer.buttons.values() if "restart" in one["value"])
    assert button["value"] == "service restart host=lb1 service=nginx"
    before = len(list_runs(alerting.harness))
    await alerting.press("ask-0", "U0DORA", message=answer, value=button["value"])
    view = list(alerting.slack.views.values())[-1]
    assert "nginx" in str(view)
    assert len(list_runs(alerting.harness)) == before


async def test_changes_that_the_agent_may_not_view_are_not_listed(alerting: Chat) -> None:
    await alerting.type("toy set lb1 lamp on because it is dark")
    await post(alerting, payloads.app_message(FIRING, ts=TS))
    [answer] = list_answers(alerting)
    assert "Changes that triage-bot may not view are not listed." in answer.words
    assert "toy set" not in answer.words


# --- by a person ---


async def test_person_has_an_alert_checked_by_the_shortcut(alerting: Chat) -> None:
    told = await use_shortcut(alerting)
    assert told == "Keyturn reads lb1. The answer comes in the thread of the message."
    [answer] = list_answers(alerting)
    assert (answer.channel, answer.thread, answer.seen_by) == ("C0OPS", TS, "")
    assert "Read as Dora Developer." in answer.words
    [run] = list_runs(alerting.harness)
    assert (run.requested_by, run.origin.user) == ("dora", "U0DORA")


async def test_only_the_person_sees_the_answer_in_a_channel_of_another_area(
    alerting: Chat,
) -> None:
    told = await use_shortcut(alerting, channel="C0WEB")
    assert "Only you get the answer" in told
    [answer] = list_answers(alerting)
    assert answer.seen_by == "U0DORA"
    await use_shortcut(alerting, channel="C0WEB")
    assert [one.seen_by for one in list_answers(alerting)] == ["U0DORA", "U0DORA"]


async def test_host_of_another_area_is_left_out_of_a_thread(alerting: Chat) -> None:
    both = {"text": "[FIRING:2] ToyShow (web1:9100 lb1:9100)"}
    assert (await use_shortcut(alerting, both)).startswith("Keyturn reads lb1.")
    [answer] = list_answers(alerting)
    assert "web1" not in answer.words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[FIRING:1] ToyShow (lb9)", "found no host of the inventory"),
        ("lunch?", "found no host of the inventory"),
    ],
)
async def test_shortcut_on_a_message_without_a_host_is_answered_by_a_sentence(
    alerting: Chat, text: str, expected: str
) -> None:
    assert expected in await use_shortcut(alerting, {"text": text})
    assert list_answers(alerting) == []
    assert list_runs(alerting.harness) == []


async def test_person_whom_the_policy_does_not_know_gets_nothing(alerting: Chat) -> None:
    chosen = payloads.message_action(SHORTCUT, "", "U0STRANGER", message=FIRING)
    await alerting.send(payloads.interaction(chosen))
    await settle(alerting)
    assert list_answers(alerting) == []
    assert list_runs(alerting.harness) == []


def test_shortcut_does_not_show_the_message_in_logs() -> None:
    shortcut = MessageShortcut(Account("T1", "U1"), "1.2", "C1", "", message={"text": "secret"})
    assert "secret" not in repr(shortcut)


async def test_storm_that_no_request_gets_through_is_not_tried_for_each_alert(
    alerting: Chat, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bot.workflow.agent_limits.MAX_REQUESTS_AN_HOUR", 0)
    for number in range(20):
        text = f"[FIRING:1] ToyShow (lb1:9100)\n - pool = tank{number}"
        await alerting.send(payloads.app_message({"text": text}))
        await alerting.settle()
    await settle(alerting)
    assert list_answers(alerting) == []
    assert sum("no further check" in one for one in caplog.messages) == 5
