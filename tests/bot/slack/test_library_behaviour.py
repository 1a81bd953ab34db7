"""What slack_bolt 1.30 and slack_sdk 3.47 do by themselves, and what guards against it.

Each behaviour has tests that fail without its guard, or that show what happens then.
"""

import asyncio
import inspect
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from bot import app as chat_of_the_service
from bot.db.database import Database
from bot.policy import PolicyDirectory
from bot.slack import app, threads, views
from bot.slack.dedup import DeliveryRegister
from bot.slack.socket_mode import EnvelopeHandler, SocketModeService
from tests.bot.slack import payloads
from tests.bot.slack.asgi import post
from tests.bot.slack.chat import Chat
from tests.bot.slack.hostile import open_hostile_chat
from tests.bot.slack.hostile_walk import Walk
from tests.bot.slack.named_tests import missing
from tests.bot.slack.payloads import SECRET, signed
from tests.playground import sample_company
from tests.playground.service import Service
from tests.policies import TEAM

pytestmark = pytest.mark.anyio

# Who guards against each habit, by file and name.
LIBRARY_BEHAVIOURS: Mapping[str, tuple[str, ...]] = {
    "1: a command that says payload is taken for a click": (
        "test_transports.test_command_with_the_word_payload_is_parsed_over_both_transports",
        "test_guard.test_stock_bolt_loses_a_command_that_contains_the_word_payload",
    ),
    "2: lazy listeners copy a client that cannot be copied": (
        "test_library_behaviour.test_no_bolt_listener_is_lazy",
        "test_library_behaviour.test_lazy_bolt_listener_fails_with_a_custom_ssl_context",
    ),
    "3: rubbish is a fault of the server": (
        "test_guard.test_slack_request_with_an_invalid_signature_gets_401",
        "test_guard.test_signed_request_with_a_malformed_body_gets_400",
        "test_guard.test_stock_bolt_answers_a_malformed_signature_with_500",
        "test_guard.test_stock_bolt_raises_on_invalid_utf8",
        "test_guard.test_stock_bolt_raises_on_broken_json",
    ),
    "4: a replay is taken": (
        "test_guard.test_replayed_slack_request_takes_effect_once",
        "test_guard.test_redelivery_with_a_new_signature_takes_effect_once",
        "test_guard.test_stock_bolt_runs_a_replayed_request_again",
    ),
    "5: what fails or is not listened to is not acknowledged": (
        "test_transports.test_unknown_commands_events_and_forms_are_acknowledged",
        "test_transports.test_internal_error_is_acknowledged_with_a_reference",
        "test_guard.test_stock_bolt_answers_an_event_without_listener_with_404",
        "test_guard.test_stock_bolt_answers_a_failing_listener_with_500",
        "test_transports.test_stock_bolt_does_not_acknowledge_failing_or_unknown_commands",
    ),
    "6: lazy work begins before the acknowledgement": (
        "test_library_behaviour.test_slack_request_is_committed_before_it_is_acknowledged",
        "test_library_behaviour.test_lazy_bolt_listener_starts_before_the_commit",
    ),
    "7: what blocks delays every acknowledgement": (
        "test_library_behaviour.test_slack_handlers_do_not_wait_for_the_database_in_the_event_loop",
        "test_library_behaviour.test_without_threads_slack_handlers_block_the_event_loop",
        "test_event_loop_lag.test_blocked_event_loop_is_logged_once_a_minute",
        "test_event_loop_lag.test_blocking_call_in_a_thread_logs_no_event_loop_warning",
    ),
    "8: a connection is closed before the next one stands": (
        "test_socket_mode.test_socket_mode_opens_two_connections_and_answers_on_both",
        "test_socket_mode.test_socket_mode_connections_are_renewed_when_slack_asks",
        "test_socket_mode.test_pending_command_is_answered_on_its_connection_during_renewal",
    ),
    "9: a wrong app token is asked with for ever": (
        "test_socket_mode.test_invalid_app_token_is_reported_and_not_retried",
        "test_socket_mode.test_stock_socket_mode_client_retries_a_bad_token_forever",
    ),
    "10: a connection looks open where nobody is": (
        "test_socket_mode.test_silent_socket_mode_connection_is_detected_and_renewed",
    ),
    "11: calls wait for half a minute": (
        "test_library_behaviour.test_form_opening_times_out_before_the_slack_trigger_expires",
        "test_library_behaviour.test_slack_client_timeout_is_shorter_than_the_default",
    ),
    "12: connecting holds the start up": (
        "test_library_behaviour.test_keyturn_becomes_ready_while_slack_does_not_answer",
        "test_library_behaviour.test_socket_mode_connect_never_returns_while_slack_does_not_answer",
    ),
    "13: arguments come in the address, as a form or as JSON": (
        "../../slack_emulator/test_methods.test_method_arguments_are_accepted_as_query_form_or_json",
    ),
}


@pytest.mark.parametrize("habit", LIBRARY_BEHAVIOURS)
def test_every_slack_library_behaviour_names_tests_that_exist(habit: str):
    assert missing(LIBRARY_BEHAVIOURS[habit]) == []


# --- 2, 6: lazy listeners ---


def _bolt(client: AsyncWebClient) -> AsyncApp:
    async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
        return AuthorizeResult(enterprise_id=enterprise_id, team_id=team_id, bot_token="xoxb-1")

    return AsyncApp(name="habits", signing_secret=SECRET, client=client, authorize=authorize)


def _served(bolt: AsyncApp) -> Callable[[Scope, Receive, Send], Any]:
    handler = AsyncSlackRequestHandler(bolt)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await (await handler.handle(Request(scope, receive)))(scope, receive, send)

    return serve


def test_no_bolt_listener_is_lazy(chat: Chat):
    bolt = _bolt(AsyncWebClient())
    chat.door._listeners.register_listeners(bolt)  # pyright: ignore[reportPrivateUsage] - as the door does
    listeners = bolt._async_listeners  # pyright: ignore[reportPrivateUsage]
    assert len(listeners) > 10
    assert [one for one in listeners if one.lazy_functions] == []


async def test_lazy_bolt_listener_fails_with_a_custom_ssl_context(anyio_backend: str):
    async def work() -> None:
        """Do nothing."""

    bolt = _bolt(AsyncWebClient(ssl=ssl.create_default_context()))
    bolt.command("/keyturn")(ack=_ack, lazy=[work])
    raw = payloads.slash("help")
    assert (await post(_served(bolt), raw, signed(raw))).status == 500


async def _ack(ack: Any) -> None:
    await ack()


async def test_slack_request_is_committed_before_it_is_acknowledged(chat: Chat):
    await chat.send(payloads.slash("toy set lb1 lamp on"))
    assert chat.harness.list_entry_kinds() == ["requested"]
    await chat.settle()
    card = chat.slack.card
    value = card.buttons["approve"]["value"]
    click = payloads.click("approve", value, "U0OLGA", channel=card.channel, ts=card.ts)
    await chat.send(payloads.interaction(click))
    assert "approved" in chat.harness.list_entry_kinds()


async def test_lazy_bolt_listener_starts_before_the_commit(anyio_backend: str):
    working = asyncio.Event()
    committed: list[bool] = []

    async def commit(ack: Any) -> None:
        async with asyncio.timeout(30):
            await working.wait()
        committed.append(True)
        await ack()

    async def work() -> None:
        assert not committed
        working.set()

    bolt = _bolt(AsyncWebClient())
    bolt.command("/keyturn")(ack=commit, lazy=[work])
    raw = payloads.slash("help")
    assert (await post(_served(bolt), raw, signed(raw))).status == 200
    assert committed


# --- 7: what blocks ---


@pytest.fixture
def blocking_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note where this door waits for database or policy in the thread of the event loop."""
    waiting: list[str] = []
    for holder, name in ((Database, "transaction"), (Database, "reading")):
        monkeypatch.setattr(holder, name, _noting(getattr(holder, name), waiting))
    monkeypatch.setattr(
        PolicyDirectory, "get_policy", _noting(PolicyDirectory.get_policy, waiting)
    )
    return waiting


def _noting(function: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    def noted(*args: object, **named: object) -> object:
        if _is_in_event_loop():
            names.extend(_find_slack_caller())
        return function(*args, **named)

    return noted


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _find_slack_caller() -> Generator[str]:
    """Yield the nearest function of the door that waits; none if it is the test itself."""
    frame = inspect.currentframe()
    room = str(Path(app.__file__).parent)
    while frame is not None:
        if frame.f_code.co_filename.startswith(room):
            yield f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            return
        frame = frame.f_back


@pytest.fixture
async def hostile_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> AsyncGenerator[Chat]:
    async with open_hostile_chat(tmp_path, monkeypatch) as chat:
        yield chat


async def test_slack_handlers_do_not_wait_for_the_database_in_the_event_loop(
    hostile_chat: Chat, blocking_calls: list[str]
):
    walk = Walk(hostile_chat)
    await walk.requests()
    await walk.decisions()
    await walk.forms()
    await walk.homes()
    await walk.troubles()
    assert blocking_calls == []


async def test_without_threads_slack_handlers_block_the_event_loop(
    chat: Chat, blocking_calls: list[str], monkeypatch: pytest.MonkeyPatch
):
    async def here(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return function(*args, **named)

    monkeypatch.setattr(asyncio, "to_thread", here)
    for name in ("run_urgently", "run_in_answer_thread"):
        monkeypatch.setattr(threads, name, here)
    await chat.type("toy show lb1")
    for place in ("identity.py", "commands.py", "outbox.py", "dedup.py"):
        assert any(thread.startswith(place) for thread in blocking_calls), place


# --- 11: time limits ---


async def test_form_opening_times_out_before_the_slack_trigger_expires(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    trigger_seconds = 3
    patience = views._OPEN_TIMEOUT_SECONDS  # pyright: ignore[reportPrivateUsage] - what it holds to
    assert patience < trigger_seconds
    monkeypatch.setattr(views, "_OPEN_TIMEOUT_SECONDS", 0.1)
    chat.slack.slowly = 0.3
    await chat.type("toy tune")
    assert "/keyturn toy tune HOST NAME" in chat.slack.whispers("U0DORA")[0].words


async def test_slack_client_timeout_is_shorter_than_the_default(anyio_backend: str):
    assert app.create_client("xoxb-1", "http://127.0.0.1:9/").timeout <= 10
    assert AsyncWebClient("xoxb-1").timeout == 30


# --- 12: the start ---


@contextmanager
def unresponsive_server() -> Generator[str]:
    """Yield the address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/api/"


def test_keyturn_becomes_ready_while_slack_does_not_answer(tmp_path: Path):
    sample_company.create_policy(tmp_path / "policy")
    tokens: Any = {"slack_bot_token": "xoxb-1", "slack_app_token": "xapp-1"}
    with (
        unresponsive_server() as api,
        Service(tmp_path, slack="", slack_team=TEAM, slack_api=api, **tokens) as service,
    ):
        answer = httpx2.get(f"{service.address}/readyz")
        assert answer.status_code == 200
        assert "0 of 2 connections are open" in answer.text


def test_readiness_fails_after_a_long_time_without_slack_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert chat_of_the_service._MAX_DISCONNECTED_SECONDS == 30  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(chat_of_the_service, "_MAX_DISCONNECTED_SECONDS", 0.5)
    sample_company.create_policy(tmp_path / "policy")
    tokens: Any = {"slack_bot_token": "xoxb-1", "slack_app_token": "xapp-1"}
    with (
        unresponsive_server() as api,
        Service(tmp_path, slack="", slack_team=TEAM, slack_api=api, **tokens) as service,
    ):
        deadline = time.monotonic() + 20
        while httpx2.get(f"{service.address}/readyz").status_code == 200:
            assert time.monotonic() < deadline
        answer = httpx2.get(f"{service.address}/readyz")
        assert answer.status_code == 503
        assert "0 of 2 connections are open" in answer.text


async def test_socket_mode_connect_never_returns_while_slack_does_not_answer(chat: Chat):
    envelopes = EnvelopeHandler(_bolt(AsyncWebClient()), DeliveryRegister(chat.harness.database))
    with unresponsive_server() as api:
        sockets = SocketModeService(app.create_client("xoxb-1", api), "xapp-1", envelopes)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await sockets.run_until_cancelled()
