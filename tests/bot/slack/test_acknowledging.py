"""Slack requests are acknowledged within three seconds, however long their work takes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from bot.model.run import State
from bot.slack import actions
from bot.slack.actions import DecisionHandler
from bot.slack.commands import SlackCommands
from tests.bot.slack import payloads
from tests.bot.slack.asgi import Answer
from tests.bot.slack.chat import PENDING_BUTTONS, Chat
from tests.bot.slack.test_form import open_form

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on"


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    for name in ("_ACKNOWLEDGED_SECONDS", "_FORM_SECONDS"):
        monkeypatch.setattr(actions, name, 0.2)


def block_method(monkeypatch: pytest.MonkeyPatch, whose: type, name: str) -> Event:
    """Have a method wait until the event is set."""
    go, real = Event(), getattr(whose, name)

    def waiting(*given: Any, **named: Any) -> Any:
        assert go.wait(20)
        return real(*given, **named)

    monkeypatch.setattr(whose, name, waiting)
    return go


async def send_and_get_acknowledgement(chat: Chat, raw: bytes) -> Answer:
    """Return the acknowledgement, which came though the work goes on."""
    async with asyncio.timeout(3):
        return await chat.send(raw)


async def test_slow_command_is_acknowledged_in_time_and_answered_later(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    go = block_method(monkeypatch, SlackCommands, "answer_command")
    answer = await send_and_get_acknowledgement(chat, payloads.slash("who lb1"))
    assert (answer.status, answer.body) == (200, b"")
    assert chat.slack.posted == []
    go.set()
    await chat.settle()
    [message] = chat.slack.whispers("U0DORA")
    assert message.text == "lb1 is in the edge"


async def test_slow_request_is_recorded_after_its_acknowledgement(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    go = block_method(monkeypatch, SlackCommands, "answer_command")
    await send_and_get_acknowledgement(chat, payloads.slash(LAMP_ON))
    await send_and_get_acknowledgement(chat, payloads.slash("toy set lb1"))
    go.set()
    await chat.door.close_listeners()
    await chat.settle()
    assert chat.run().state is State.PENDING
    assert set(chat.slack.posted[-1].buttons) == PENDING_BUTTONS
    assert "/keyturn toy set" in chat.slack.whispers("U0DORA")[0].words


async def test_form_opens_after_a_slow_command_is_acknowledged(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    go = block_method(monkeypatch, SlackCommands, "answer_command")
    await send_and_get_acknowledgement(chat, payloads.slash("toy tune"))
    go.set()
    await chat.settle()
    [view] = chat.slack.views.values()
    assert view["title"]["text"] == "toy tune"


@pytest.mark.parametrize("user", ["U0OLGA", "U0STAN"])
async def test_slow_approval_click_is_decided_or_refused_after_acknowledgement(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, user: str
):
    await chat.type(LAMP_ON)
    go = block_method(monkeypatch, DecisionHandler, "decide_by_click")
    card = chat.slack.card
    payload = payloads.click(
        "approve", card.buttons["approve"]["value"], user, channel=card.channel, ts=card.ts
    )
    assert (await send_and_get_acknowledgement(chat, payloads.interaction(payload))).status == 200
    go.set()
    await chat.door.close_listeners()
    await chat.settle()
    may = user == "U0OLGA"
    assert chat.run().state is (State.SUCCEEDED if may else State.PENDING)
    assert bool(chat.slack.whispers(user)) is not may


@pytest.mark.parametrize("reason", ["because a customer called", "\u202e"])
async def test_slow_form_submission_sends_its_plan_or_error_as_direct_message(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, reason: str
):
    shown = await open_form(chat, "toy tune")
    go = block_method(monkeypatch, actions.RequestForms, "submit_form")
    values = {"host": "lb1", "name": "lamp", "because": reason}
    payload = payloads.in_view("view_submission", shown.payload(values), "U0DORA")
    assert (await send_and_get_acknowledgement(chat, payloads.interaction(payload))).body == b""
    go.set()
    await chat.settle()
    wrong = [one.text for one in chat.slack.seen_in("D0DORA")]
    if reason.isprintable():
        # The form has closed: its plan comes as a message.
        assert chat.run().state is State.PLANNED
        assert wrong == ["Plan: toy tune lb1 lamp"]
    else:
        assert wrong[0].startswith("Request not sent: ")


async def test_command_is_refused_when_too_many_background_tasks_wait(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(actions, "_MAX_BACKGROUND_TASKS", 2)
    go = block_method(monkeypatch, SlackCommands, "answer_command")
    for _ in range(2):
        await send_and_get_acknowledgement(chat, payloads.slash("who lb1"))
    answer = await send_and_get_acknowledgement(chat, payloads.slash(LAMP_ON))
    assert "Keyturn is overloaded" in answer.json["text"]
    go.set()
    await chat.settle()
    with chat.harness.database.reading() as tx:
        assert tx.sql.exec_driver_sql("SELECT count(*) FROM run").scalar_one() == 0


async def test_command_is_answered_while_the_default_thread_pool_is_full(chat: Chat):
    """What sends news and draws Homes shares one pool, which may be full of who waits."""
    await chat.type("who lb1")
    loop, go = asyncio.get_running_loop(), Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    waiting = loop.run_in_executor(None, go.wait, 20)
    try:
        answer = await send_and_get_acknowledgement(chat, payloads.slash("who lb1"))
    finally:
        go.set()
        await waiting
    assert answer.json["text"] == "lb1 is in the edge"
