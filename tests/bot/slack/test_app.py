"""The Slack service as a whole: every request is answered, internal errors without details."""

import json
import logging

import pytest
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.queries.form_options import FormOptions
from bot.slack.actions import SlackListeners
from bot.slack.app import SlackService, SlackSettings
from bot.slack.payloads import Body
from tests.bot.harness import Harness
from tests.bot.slack import payloads
from tests.bot.slack.asgi import post
from tests.bot.slack.chat import Chat
from tests.bot.slack.payloads import signed
from tests.policies import TEAM

pytestmark = pytest.mark.anyio


def break_policy(chat: Chat, message: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(message)

    chat.harness.policies.get_policy = fail  # type: ignore[method-assign] # a fault of our own


async def test_internal_error_answers_with_a_reference_and_no_details(
    chat: Chat, caplog: pytest.LogCaptureFixture
):
    break_policy(chat, "the secret inside")
    answer = await chat.type("toy set lb1 lamp on")
    assert answer.status == 200
    assert "reference" in answer.text
    assert "secret" not in answer.text
    reference = answer.text.split("reference ")[1][:8]
    assert any(reference in record.getMessage() for record in caplog.records)


async def test_internal_error_after_a_click_is_shown_to_the_person_who_clicked(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    card = chat.slack.card
    break_policy(chat, "the secret inside")
    payload = payloads.click("approve", "1:0123456789", "U0OLGA", channel="C0OPS", ts=card.ts)
    answer = await chat.send(payloads.interaction(payload))
    await chat.door.close_listeners()
    assert (answer.status, answer.body) == (200, b"")
    assert "reference" in chat.slack.whispers("U0OLGA")[0].words


async def test_unknown_commands_buttons_and_events_are_answered(chat: Chat):
    assert (await chat.send(payloads.slash("help", command="/other"))).status == 200
    click = payloads.click("launch", "1", "U0OLGA", channel="C0OPS", ts="1.1")
    assert (await chat.send(payloads.interaction(click))).status == 200
    await chat.door.close_listeners()
    assert "does not support that" in chat.slack.whispers("U0OLGA")[0].words
    raw = payloads.event("Ev1")
    kind = signed(raw, kind=b"application/json")
    assert (await post(chat.door.app, raw, kind)).status == 200


async def test_url_verification_returns_the_challenge(chat: Chat):
    raw = json.dumps({"token": "x", "challenge": "3eZbrw1a", "type": "url_verification"}).encode()
    answer = await post(chat.door.app, raw, signed(raw, kind=b"application/json"))
    assert (answer.status, answer.json) == (200, {"challenge": "3eZbrw1a"})


@pytest.mark.malformed
async def test_malformed_payloads_cause_no_server_error_and_no_log_entry(chat: Chat):
    odd: list[object] = [
        {"type": "block_actions"},
        {"type": "block_actions", "actions": "approve", "user": 1, "team": 2},
        {"type": "block_actions", "actions": [None], "container": []},
        {"type": "event_callback", "event": "text"},
        {"type": "event_callback", "event": {"type": 1}, "authorizations": [1]},
        {"type": "view_submission", "view": None},
        {"type": ["x"], "user": {"id": {}}},
        {},
    ]
    for shape in odd:
        raw = json.dumps(shape).encode()
        assert (await post(chat.door.app, raw, signed(raw))).status in {200, 400}, shape
    await chat.door.close_listeners()
    assert chat.harness.list_entry_kinds() == []


async def test_typed_text_and_response_urls_are_not_logged(
    chat: Chat, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    await chat.type("toy set lb1 lamp on because hunter2")
    raw = payloads.slash("hunter2")
    await post(chat.door.app, raw, signed(raw, secret="guessed"))
    assert "hunter2" not in caplog.text
    assert "hooks.slack.com" not in caplog.text


async def test_command_is_answered_in_time_when_the_slack_api_is_slow(chat: Chat):
    chat.slack.slowly = 2.2
    answer = await chat.send(payloads.slash("help"))
    assert "did not confirm your account" in answer.text


async def test_keyturn_command_bypasses_bolt_with_the_same_answer(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    """Bolt takes longer to find whose it is than we take to answer; the answer is the same."""
    asked: list[str] = []
    plain = AsyncApp.async_dispatch

    async def noted(self: AsyncApp, request: AsyncBoltRequest) -> BoltResponse:
        asked.append(str(request.body.get("command")))
        return await plain(self, request)

    monkeypatch.setattr(AsyncApp, "async_dispatch", noted)
    straight = await chat.type("who lb1")
    assert asked == []
    await chat.send(payloads.slash("who lb1", command="/other"))
    assert asked == ["/other"]

    async def to_bolt(_: SlackListeners, _body: Body) -> None:
        return None

    monkeypatch.setattr(SlackListeners, "answer_command", to_bolt)
    by_bolt = await chat.type("who  lb1")
    assert asked == ["/other", "/keyturn"]
    assert (straight.status, straight.json) == (by_bolt.status, by_bolt.json)


def test_slack_service_without_signing_secret_is_refused(harness: Harness):
    client = AsyncWebClient(token="xoxb-1")
    offering = FormOptions(harness.fleet.run_query, harness.database, harness.policies)
    parts = (harness.service, harness.database, harness.policies)
    with pytest.raises(ValueError, match="requests cannot be verified"):
        SlackService(*parts, client, SlackSettings("", TEAM), offering)
