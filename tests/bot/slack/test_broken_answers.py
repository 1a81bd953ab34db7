"""Malformed answers of Slack: messages and forms are retried, and people get an explanation."""

from collections.abc import Callable

import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.state import RetryState

from bot.model.run import State
from bot.slack import actions, app, modals, views
from bot.slack.client import get_error_cause, is_retryable
from bot.slack.self_check import SlackConnectionSettings, check_slack_connection
from tests.bot.harness import Harness
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat, open_chat
from tests.bot.slack.json_walk import list_texts
from tests.bot.slack.web_api import WebApi, serve_web_api
from tests.policies import TEAM

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on"


def _create_response(status: int, text: str, kind: str) -> Callable[[], web.Response]:
    return lambda: web.Response(status=status, text=text, content_type=kind)


MALFORMED = {
    "a text": _create_response(503, "upstream connect error or disconnect/reset", "text/plain"),
    "a page": _create_response(502, "<html>bad gateway</html>", "text/html"),
    "half an answer": _create_response(500, '{"ok": fal', "application/json"),
    "nothing in it": _create_response(503, "null", "application/json"),
    "a list": _create_response(200, "[]", "application/json"),
    "a text that all is well": _create_response(200, "ok", "text/plain"),
    "bytes that are no text": lambda: web.Response(
        body=b'{"ok": "\xff"}', content_type="application/json"
    ),
}


@pytest.fixture(params=MALFORMED)
def build_malformed(request: pytest.FixtureRequest) -> Callable[[], web.Response]:
    return MALFORMED[request.param]


@pytest.fixture(autouse=True)
def no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(actions, "_RETRY_SECONDS", 0.0)


def refuse_with(
    slack: WebApi, method: str, build_malformed: Callable[[], web.Response], times: int = 1
) -> None:
    slack.refusals[method] = [build_malformed() for _ in range(times)]


async def test_malformed_slack_api_answer_raises_a_retryable_error(
    build_malformed: Callable[[], web.Response], anyio_backend: str
):
    async with serve_web_api() as slack:
        refuse_with(slack, "users.info", build_malformed)
        with pytest.raises(SlackApiError) as caught:
            await app.create_client("xoxb-1", slack.url).users_info(user="U0DORA")
        assert is_retryable(caught.value)
        assert get_error_cause(caught.value).startswith("status ")


async def test_card_is_retried_after_a_malformed_slack_api_answer(
    chat: Chat, build_malformed: Callable[[], web.Response]
):
    refuse_with(chat.slack, "chat.postMessage", build_malformed)
    await chat.type(LAMP_ON)
    assert chat.slack.posted == []
    with chat.harness.database.transaction() as tx:
        [why] = tx.sql.exec_driver_sql("SELECT error FROM outbox").scalars()
        tx.sql.exec_driver_sql("UPDATE outbox SET next_attempt_at = 0")
    assert why.startswith("status ")
    await chat.settle()
    assert chat.slack.card.text.startswith("Run 1 · Needs approval")


async def test_ephemeral_refusal_is_retried_after_a_malformed_slack_api_answer(
    chat: Chat, build_malformed: Callable[[], web.Response]
):
    await chat.type(LAMP_ON)
    refuse_with(chat.slack, "chat.postEphemeral", build_malformed)
    await chat.press("approve", "U0STAN")
    [message] = chat.slack.whispers("U0STAN")
    assert "Something in Keyturn" not in message.text


async def test_ephemeral_refusal_is_tried_at_most_twice(chat: Chat):
    await chat.type(LAMP_ON)
    refuse_with(chat.slack, "chat.postEphemeral", MALFORMED["a text"], times=5)
    await chat.press("approve", "U0STAN")
    assert [call for call, _ in chat.slack.calls].count("chat.postEphemeral") == 2


async def test_request_is_refused_when_slack_does_not_confirm_the_account(
    chat: Chat, build_malformed: Callable[[], web.Response]
):
    refuse_with(chat.slack, "users.info", build_malformed)
    answer = await chat.type(LAMP_ON)
    assert "Slack did not confirm your account" in answer.json["text"]


async def test_form_is_filled_in_by_a_second_views_update(
    chat: Chat, build_malformed: Callable[[], web.Response]
):
    refuse_with(chat.slack, "views.update", build_malformed)
    await chat.type("toy tune")
    [view] = chat.slack.views.values()
    assert view["title"]["text"] == "toy tune"


async def test_form_that_cannot_be_updated_is_replaced_by_command_usage(
    chat: Chat, build_malformed: Callable[[], web.Response]
):
    refuse_with(chat.slack, "views.update", build_malformed, times=5)
    await chat.type("toy tune")
    [message] = chat.slack.whispers("U0DORA")
    assert "/keyturn toy tune HOST NAME" in message.words


@pytest.mark.parametrize(("lost", "drawn"), [(3, True), (9, False)])
async def test_form_update_is_retried_after_a_lost_connection(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, lost: int, *, drawn: bool
):
    """Each try is two: what speaks to Slack repeats what broke off."""
    monkeypatch.setattr(
        app.ConnectionRetryHandler, "prepare_for_next_attempt_async", _retry_at_once
    )
    chat.slack.unheard, chat.slack.unheard_of = lost, "views.update"
    await chat.type("toy tune")
    assert [call for call, _ in chat.slack.calls].count("views.update") == 4
    assert bool(chat.slack.whispers("U0DORA")) is not drawn


async def _retry_at_once(_self: object, *, state: RetryState, **_: object) -> None:
    state.next_attempt_requested = True
    state.increment_current_attempt()


async def test_form_that_fails_to_load_reports_an_internal_error(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    def without_a_policy(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(modals.RequestForms, "_build_form", without_a_policy)
    await chat.type("toy tune")
    [view] = chat.slack.views.values()
    assert "cannot be loaded" in " ".join(list_texts(view["blocks"]))
    [message] = chat.slack.whispers("U0DORA")
    assert "Internal error in Keyturn" in message.text
    assert "disk" not in message.text


async def test_repeat_button_reports_that_slack_did_not_confirm_the_account(chat: Chat):
    refuse_with(chat.slack, "users.info", MALFORMED["a text"])
    payload = payloads.click("again", "1", "U0DORA", channel="C0OPS", ts="1.1")
    await chat.send(payloads.interaction(payload))
    await chat.settle()
    [message] = chat.slack.whispers("U0DORA")
    assert "Slack did not confirm your account" in message.text


async def test_doctor_reports_an_internal_error_of_slack_not_a_bad_token(
    build_malformed: Callable[[], web.Response], anyio_backend: str
):
    async with serve_web_api() as slack:
        refuse_with(slack, "auth.test", build_malformed)
        way = SlackConnectionSettings(TEAM, "", "secret", "https://keyturn.example.com", {})
        [result] = [
            one
            async for one in check_slack_connection(app.create_client("xoxb-1", slack.url), way)
        ]
    assert "Slack has an internal error (status " in result.message


# --- what Slack takes of a message ---


@pytest.mark.parametrize("error", ["invalid_blocks", "msg_blocks_too_long", "block_mismatch"])
async def test_card_whose_blocks_slack_refuses_is_updated_as_text_without_buttons(
    chat: Chat, error: str
):
    await chat.type(LAMP_ON)
    assert chat.slack.card.buttons
    for _ in range(3):
        chat.slack.refuse("chat.update", error)
        chat.slack.refusals["chat.update"].append(_accept_update(chat))
    await chat.press("approve", "U0OLGA")
    assert chat.run().state is State.SUCCEEDED
    updates = [args for call, args in chat.slack.calls if call == "chat.update"]
    assert updates[-1]["blocks"] == []
    assert updates[-1]["text"].startswith("Run 1 · Succeeded")
    [result] = [one for one in chat.slack.posted if one.thread]
    assert "lb1" in result.text


def _accept_update(chat: Chat) -> web.Response:
    return web.json_response({"ok": True, "channel": "C0OPS", "ts": chat.slack.card.ts})


async def test_result_is_posted_to_the_thread_while_the_card_update_fails(chat: Chat):
    """The card is tried again; what else there is to say is said meanwhile."""
    await chat.type(LAMP_ON)
    for _ in range(8):
        chat.slack.refuse("chat.update", "no_such_reason")
    await chat.press("approve", "U0OLGA")
    [result] = [one for one in chat.slack.posted if one.thread]
    assert result.text.startswith("Run 1 · Succeeded")
    chat.slack.refusals.clear()
    with chat.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE outbox SET next_attempt_at = 0")
    await chat.settle()
    [card] = [one for one in chat.slack.posted if not one.thread]
    assert card.text.startswith("Run 1 · Succeeded")
    assert len([one for one in chat.slack.posted if one.thread]) == 1


async def test_card_that_slack_refuses_to_post_is_not_sent_elsewhere(harness: Harness):
    async with open_chat(harness, default_channel="C0OPS") as chat:
        chat.slack.refuse("chat.postMessage", "no_such_reason")
        await chat.type(LAMP_ON)
        assert chat.slack.posted == []


async def test_ephemeral_refusal_is_sent_as_text_when_slack_refuses_its_blocks(chat: Chat):
    await chat.type(LAMP_ON)
    chat.slack.refuse("chat.postEphemeral", "invalid_blocks")
    await chat.press("approve", "U0STAN")
    [message] = chat.slack.whispers("U0STAN")
    assert message.blocks == []
    assert message.text
