"""What holds for Slack requests over HTTP and over Socket Mode."""

import json
from collections.abc import AsyncIterator, Mapping

import pytest
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.model.run import State
from tests.bot.harness import Harness
from tests.bot.slack import payloads
from tests.bot.slack.slack_connection import TRANSPORTS, Send, SlackConnection, open_connection
from tests.slack_emulator.deliveries import Answer

pytestmark = pytest.mark.anyio

FORM = {"content-type": "application/x-www-form-urlencoded"}
JSON = {"content-type": "application/json"}


@pytest.fixture
async def connection(harness: Harness, anyio_backend: str) -> AsyncIterator[SlackConnection]:
    async with open_connection(harness) as connection:
        yield connection


@pytest.fixture(params=TRANSPORTS)
async def send(request: pytest.FixtureRequest, connection: SlackConnection) -> AsyncIterator[Send]:
    async with TRANSPORTS[request.param](connection) as send:
        yield send


def words(answer: Answer) -> str:
    return str(json.loads(answer.content or b"{}").get("text", ""))


async def test_command_is_answered_over_http_and_socket_mode(send: Send):
    answer = await send(payloads.slash("help"), FORM)
    assert answer.status_code == 200
    assert "Keyturn help" in words(answer)


async def test_command_with_the_word_payload_is_parsed_over_both_transports(
    send: Send, connection: SlackConnection
):
    connection.harness.fleet.hosts["lb1"]["payload"] = "off"
    raw = payloads.slash("toy set lb1 payload on", channel_name="payload", user_name="payload")
    assert (await send(raw, FORM)).status_code == 200
    connection.harness.run_queued_work()
    assert connection.harness.get_run(1).values["name"] == "payload"


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        (payloads.slash("help", command="/other"), FORM),
        (payloads.event("Ev0"), JSON),
        (payloads.interaction({"type": "shortcut", "callback_id": "none"}), FORM),
        (
            payloads.interaction(
                {"type": "view_submission", "view": {"type": "modal", "callback_id": "none"}}
            ),
            FORM,
        ),
        (payloads.interaction({"type": "block_suggestion", "action_id": "none"}), FORM),
    ],
    ids=["command", "event", "shortcut", "form", "choices"],
)
async def test_unknown_commands_events_and_forms_are_acknowledged(
    send: Send, raw: bytes, headers: Mapping[str, str]
):
    assert (await send(raw, headers)).status_code == 200


async def test_internal_error_is_acknowledged_with_a_reference(
    send: Send, connection: SlackConnection
):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the secret inside")

    connection.harness.policies.get_policy = fail  # type: ignore[method-assign] # a fault of our own
    answer = await send(payloads.slash("help"), FORM)
    assert answer.status_code == 200
    assert "reference" in words(answer)
    assert "secret" not in words(answer)
    click = payloads.click("approve", "1:0123456789", "U0OLGA", channel="C0OPS", ts="1.1")
    assert (await send(payloads.interaction(click), FORM)).status_code == 200


async def test_redelivered_command_is_requested_once(send: Send, connection: SlackConnection):
    raw = payloads.slash("toy set lb1 lamp on")
    for _ in range(3):
        assert (await send(raw, FORM)).status_code == 200
    connection.harness.run_queued_work()
    assert connection.harness.list_entry_kinds().count("requested") == 1


async def test_redelivered_click_approves_once(send: Send, connection: SlackConnection):
    await send(payloads.slash("toy set lb1 lamp on"), FORM)
    connection.harness.run_queued_work()
    await connection.door.outbox.deliver_due()
    [card] = connection.emulator.workspace.log("C0OPS", "U0OLGA")
    value = connection.harness.get_run(1).digest[:10]
    click = payloads.click("approve", f"1:{value}", "U0OLGA", channel="C0OPS", ts=card.ts)
    for _ in range(3):
        await send(payloads.interaction(click), FORM)
    connection.harness.run_queued_work()
    assert connection.harness.get_run(1).state is State.SUCCEEDED
    assert connection.harness.list_entry_kinds().count("approved") == 1


async def test_redelivered_event_is_acknowledged(send: Send):
    for number in range(4):
        retried = {"x-slack-retry-num": str(number), "x-slack-retry-reason": "http_timeout"}
        headers = JSON | (retried if number else {})
        assert (await send(payloads.event("Ev7"), headers)).status_code == 200


ODD: list[dict[str, object]] = [
    {"type": "block_actions"},
    {"type": "block_actions", "actions": "approve", "user": 1, "team": 2},
    {"type": "block_actions", "actions": [None], "container": []},
    {"type": "event_callback", "event": "text"},
    {"type": "event_callback", "event": {"type": 1}, "authorizations": [1]},
    {"type": "view_submission", "view": None},
    {"type": ["x"], "user": {"id": {}}},
    {"type": "events_api", "user": "\x00"},
    {},
]


@pytest.mark.parametrize("shape", ODD, ids=str)
@pytest.mark.malformed
async def test_malformed_payload_is_acknowledged_without_a_log_entry(
    send: Send, connection: SlackConnection, shape: dict[str, object]
):
    assert (await send(json.dumps(shape).encode(), JSON)).status_code in {200, 400}
    assert connection.harness.list_entry_kinds() == []


async def test_command_is_refused_when_its_delivery_cannot_be_recorded(
    send: Send, connection: SlackConnection
):
    with connection.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("DROP TABLE seen_request")
    assert "Nothing was done" in words(await send(payloads.slash("toy set lb1 lamp on"), FORM))
    assert connection.harness.list_entry_kinds() == []


# --- Bolt's own adapter ---


class _Ear(SocketModeClient):
    """Notes what would be sent."""

    def __init__(self) -> None:
        super().__init__("xapp-1")
        self.responses: list[object] = []

    async def send_socket_mode_response(self, response: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - a fake of it
        self.responses.append(response)


async def test_stock_bolt_does_not_acknowledge_failing_or_unknown_commands(
    anyio_backend: str,
):
    async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
        return AuthorizeResult(enterprise_id=enterprise_id, team_id=team_id, bot_token="xoxb-1")

    async def on_command() -> None:
        raise RuntimeError("on purpose")

    bolt = AsyncApp(
        name="tests",
        signing_secret="x",
        client=AsyncWebClient(),
        authorize=authorize,
        process_before_response=True,
    )
    bolt.command("/keyturn")(on_command)
    ear = _Ear()
    for payload in ({"command": "/keyturn", "text": ""}, {"command": "/other", "text": ""}):
        request = SocketModeRequest("slash_commands", "e1", payload, accepts_response_payload=True)
        response = await run_async_bolt_app(bolt, request)
        await send_async_response(ear, request, response, 0.0)
    assert ear.responses == []
    await ear.close()
