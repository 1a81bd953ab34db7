"""Socket Mode connections: opened, renewed, reopened and closed."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.bot.harness import Harness
from tests.bot.slack import payloads
from tests.bot.slack.asgi import post
from tests.bot.slack.payloads import signed
from tests.bot.slack.slack_connection import SlackConnection, open_connection, over_socket_mode
from tests.slack_emulator.serving import wait_until

pytestmark = pytest.mark.anyio

OPEN = "apps.connections.open"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
async def connection(harness: Harness, anyio_backend: str) -> AsyncIterator[SlackConnection]:
    async with open_connection(harness) as connection:
        await connection.connected()
        yield connection


async def test_socket_mode_opens_two_connections_and_answers_on_both(connection: SlackConnection):
    for _ in range(4):
        await connection.type("help")
    assert connection.emulator.sockets.connections == 2
    assert connection.seen_by().count("Keyturn help") == 4


async def test_socket_mode_command_posts_its_approval_card(connection: SlackConnection):
    await connection.type("toy set lb1 lamp on")
    connection.harness.run_queued_work()
    await connection.door.outbox.deliver_due()
    assert "Needs approval" in connection.seen_by("U0OLGA")


async def test_invalid_app_token_is_reported_and_not_retried(
    harness: Harness, caplog: pytest.LogCaptureFixture
):
    async with open_connection(harness, app_token="xapp-guessed") as connection:
        async with asyncio.timeout(30):
            await connection.listening
        assert connection.sockets.status.is_token_refused
        assert "make one with the scope connections:write" in connection.sockets.status.error
        [critical, *_] = [
            record for record in caplog.records if record.levelno == logging.CRITICAL
        ]
        assert "invalid_auth" in critical.getMessage()
        assert "guessed" not in caplog.text
        assert connection.calls == []


async def test_bot_token_given_as_app_token_is_reported(harness: Harness):
    async with open_connection(harness) as connection:
        await connection.connected()
        wrong = connection.emulator.bot_token
    async with open_connection(harness, app_token=wrong) as other:
        other.emulator.bot_token = wrong
        await other.listening
        assert other.sockets.status.is_token_refused


async def test_socket_mode_connections_are_renewed_when_slack_asks(connection: SlackConnection):
    """A warning and the request itself come for each connection, and ask for one new one."""
    before = connection.calls.count(OPEN)
    await connection.emulator.sockets.renew()
    await wait_until(lambda: connection.emulator.sockets.connections == 2)
    await connection.connected()
    await connection.type("help")
    assert "Keyturn help" in connection.seen_by()
    assert connection.calls.count(OPEN) - before == 2


async def test_pending_command_is_answered_on_its_connection_during_renewal(
    connection: SlackConnection,
):
    """The answer is ready only after the connection was asked to go."""
    connection.emulator.workspace.faults.latency = 0.3
    asked = asyncio.create_task(connection.emulator.sockets.deliver(payloads.slash("help"), FORM))
    await wait_until(lambda: connection.emulator.sockets.sent)
    await connection.emulator.sockets.renew()
    async with asyncio.timeout(20):
        assert b"Keyturn help" in (await asked).content


async def test_broken_socket_mode_connections_are_reopened(connection: SlackConnection):
    await connection.emulator.sockets.cut()
    await wait_until(lambda: connection.emulator.sockets.connections == 2)
    await connection.connected()


@pytest.mark.parametrize(
    ("reason", "words"),
    [("link_disabled", "switched off"), ("too_many_websockets", "more connections than")],
)
async def test_disconnect_reason_of_slack_is_logged(
    connection: SlackConnection, caplog: pytest.LogCaptureFixture, reason: str, words: str
):
    await connection.emulator.sockets.renew(reason)
    await wait_until(lambda: words in caplog.text)
    await connection.connected()


async def test_socket_mode_connects_after_a_slack_rate_limit(harness: Harness):
    async with open_connection(harness) as connection:
        connection.emulator.workspace.faults.calls_to_limit = 2
        await connection.connected()
        assert connection.emulator.workspace.faults.calls_to_limit == 0


async def test_keyturn_reconnects_within_a_ping_after_an_outage(harness: Harness):
    async with open_connection(harness, ping_seconds=0.2) as connection:
        await connection.connected()
        straight = connection.emulator.url
        connection.emulator.url = "http://127.0.0.1:9/nobody"
        await connection.emulator.sockets.cut()
        await wait_until(lambda: connection.calls.count(OPEN) >= 2 + 2 * 5, within=30)
        assert connection.sockets.status.open_connections == 0
        assert connection.sockets.status.seconds_down > 0.5
        connection.emulator.url = straight
        connection.emulator.workspace.faults.calls_to_fail = 2
        await connection.connected()
        assert connection.sockets.status.seconds_down == 0


async def test_socket_mode_pauses_before_reopening_connections_closed_at_once(
    connection: SlackConnection,
):
    """The first time at once; the SDK would open the next ones without a pause too."""
    sockets, loop = connection.emulator.sockets, asyncio.get_running_loop()
    began = loop.time()
    for _ in range(2):
        await sockets.renew()
        await connection.connected()
        await wait_until(lambda: sockets.connections == 2)
    assert loop.time() - began > connection.sockets.ping_seconds


@asynccontextmanager
async def frozen_when_asked(target: int) -> AsyncGenerator[tuple[int, asyncio.Event]]:
    """Relay to a port of this machine, until the event is set: then nothing passes any more."""
    frozen, tasks = asyncio.Event(), set[asyncio.Task[None]]()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if frozen.is_set():
                    await asyncio.Event().wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        away_reader, away_writer = await asyncio.open_connection("127.0.0.1", target)
        tasks.add(asyncio.create_task(pump(reader, away_writer)))
        tasks.add(asyncio.create_task(pump(away_reader, writer)))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], frozen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_silent_socket_mode_connection_is_detected_and_renewed(harness: Harness):
    """It stays open for the kernel: no error comes."""
    async with open_connection(harness, ping_seconds=0.5) as connection:
        port = int(connection.emulator.url.split(":")[2].split("/")[0])
        async with frozen_when_asked(port) as (front, frozen):
            straight = connection.emulator.url
            connection.emulator.url = straight.replace(str(port), str(front))
            await connection.connected()
            connection.emulator.url = straight
            opened = connection.calls.count(OPEN)
            frozen.set()
            await wait_until(lambda: connection.calls.count(OPEN) >= opened + 2, within=20)
            await connection.connected()
            await connection.end()


async def test_shutdown_answers_pending_commands_and_closes_connections(
    connection: SlackConnection,
):
    connection.emulator.workspace.faults.latency = 0.3
    asked = asyncio.create_task(connection.emulator.sockets.deliver(payloads.slash("help"), FORM))
    await wait_until(lambda: "users.info" in connection.calls)
    await connection.end()
    assert b"Keyturn help" in (await asked).content
    await wait_until(lambda: connection.emulator.sockets.connections == 0)


async def test_http_endpoint_is_absent_without_a_signing_secret(harness: Harness):
    async with open_connection(harness, signing_secret="") as connection:
        raw = payloads.slash("help")
        answer = await post(connection.door.app, raw, signed(raw, secret=""))
        assert answer.status == 404


async def test_unrecorded_event_is_not_acknowledged(connection: SlackConnection):
    """Without the database nothing is acknowledged, so that Slack keeps it for us."""
    with connection.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("DROP TABLE seen_request")
    async with over_socket_mode(connection) as send:
        sending = asyncio.ensure_future(
            send(payloads.event("Ev1"), {"content-type": "application/json"})
        )
        await wait_until(lambda: connection.emulator.sockets.sent)
        # What is sent after it is answered first, by the same two connections.
        for _ in range(2):
            await send(payloads.slash("help"), FORM)
        assert not sending.done()
        sending.cancel()


async def test_invalid_socket_mode_envelope_is_ignored(connection: SlackConnection):
    for rubbish in ("", "x", "[]", '{"type":"slash_commands"}', '{"envelope_id":1}', '{"a":NaN}'):
        await connection.emulator.sockets.say(rubbish)
    await connection.emulator.sockets.say(json.dumps({"envelope_id": "e", "payload": "text"}))
    await connection.type("help")
    assert "Keyturn help" in connection.seen_by()
    assert connection.sockets.status.open_connections == 2


async def test_socket_mode_address_with_its_ticket_is_not_logged(
    connection: SlackConnection, caplog: pytest.LogCaptureFixture
):
    """Whoever has it listens in our place."""
    caplog.set_level(logging.INFO)
    connection.emulator.url = connection.emulator.url.replace("/emulator", "/nowhere")
    await connection.emulator.sockets.cut()
    await wait_until(lambda: "status 40" in connection.sockets.status.error)
    assert "ticket" not in caplog.text
    assert "ticket" not in connection.sockets.status.error


async def test_socket_mode_ignores_https_proxy_for_plain_http(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The emulator speaks plain HTTP, for which HTTPS_PROXY does not count."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    async with open_connection(harness) as connection:
        await connection.connected()


async def test_emulator_refuses_a_socket_mode_connection_without_ticket(
    connection: SlackConnection,
):
    address = connection.emulator.url.replace("http", "ws") + "/link?ticket=guessed"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(address)


def test_stock_socket_mode_client_retries_a_bad_token_forever(monkeypatch: pytest.MonkeyPatch):
    """It has no end but closing it: a token that is wrong is asked with again and again."""
    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.web.async_client import AsyncWebClient

    async def scene() -> int:
        stock = SocketModeClient("xapp-bad", ping_interval=0.01, web_client=AsyncWebClient("x"))
        asked = 0

        async def refuse(*_: Any) -> str:
            nonlocal asked
            asked += 1
            raise RuntimeError("invalid_auth")

        monkeypatch.setattr(stock, "issue_new_wss_url", refuse)
        connecting = asyncio.create_task(stock.connect())
        await wait_until(lambda: asked > 5)
        assert not connecting.done()
        await stock.close()
        await connecting
        return asked

    assert asyncio.run(scene()) > 5
