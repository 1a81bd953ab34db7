"""Socket Mode: Keyturn connects to Slack, so no port has to be open to the outside.

The client is slack_sdk's. There are two connections: one receives while the other is renewed.
Source: https://docs.slack.dev/tools/python-slack-sdk/socket-mode/
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientHttpProxyError, ClientResponseError
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app
from slack_bolt.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.db.database import StoreUnavailable
from bot.slack import self_check
from bot.slack.client import get_error_cause
from bot.slack.dedup import STORE_UNAVAILABLE_MESSAGE, DeliveryRegister
from bot.slack.payloads import Body, MalformedBodyError, check_shape, parse_body

log = logging.getLogger(__name__)

_CONNECTION_COUNT = 2
# Between two pings of the SDK, and between two attempts to connect after the first.
_PING_SECONDS = 5.0
_CONNECT_TIMEOUT_SECONDS = 20.0
# How long Slack may take to close a connection that it wants renewed, and we to answer the last
# requests on it.
_DRAIN_SECONDS, _FINISH_SECONDS = 15.0, 3.0
# A connection that lasted this long counts as a success: the next attempt starts immediately.
_SETTLED_SECONDS = 5.0
# Errors that a person must correct; a retry does not help.
# Source: https://docs.slack.dev/reference/methods/apps.connections.open
_TOKEN_ERRORS = frozenset(
    {
        "access_denied",
        "account_inactive",
        "forbidden_team",
        "invalid_auth",
        "missing_scope",
        "no_permission",
        "not_allowed_token_type",
        "not_authed",
        "team_access_not_granted",
        "token_expired",
        "token_revoked",
    }
)
_CREDENTIALS_FIX = (
    "make one with the scope connections:write (Basic Information, App-Level Tokens, of the Slack "
    "app), set KEYTURN_SLACK_APP_TOKEN to it, and restart Keyturn"
)
_DISCONNECT_REASONS = {
    "link_disabled": "Socket Mode is switched off in the settings of the Slack app",
    "too_many_websockets": "the Slack app has more connections than Slack allows",
}


@dataclass(frozen=True)
class SocketModeStatus:
    """The state of the connections to Slack."""

    open_connections: int
    """How many connections Slack has greeted and can use."""
    wanted_connections: int
    error: str = ""
    """What is wrong; "" if nothing is."""
    is_token_refused: bool = False
    """Slack refused the app token: there are no more attempts."""
    seconds_down: float = 0.0
    """How long there has been no connection; 0 while there is one."""


class EnvelopeHandler:
    """Passes each envelope, which holds a request from Slack, to Bolt, once.

    Bolt 1.30's own adapter does not acknowledge envelopes that it did not answer with 200.
    """

    def __init__(self, bolt: AsyncApp, deliveries: DeliveryRegister) -> None:
        self._bolt, self._deliveries = bolt, deliveries

    async def acknowledge_envelope(self, request: SocketModeRequest) -> SocketModeResponse | None:
        """Return the acknowledgement of an envelope; None to have Slack deliver it again."""
        name = request.envelope_id
        try:
            body = check_shape(parse_body(json.dumps(request.payload), "application/json"))
        except (MalformedBodyError, RecursionError) as error:
            log.info("ignored a malformed envelope: %s", error)
            return SocketModeResponse(name)
        try:
            first = await self._deliveries.is_first_delivery(body, key=f"envelope {name}")
        except StoreUnavailable as error:
            log.critical("cannot accept requests from Slack: %s", error)
            return _build_unavailable_response(request)
        return SocketModeResponse(name, await self._dispatch_to_bolt(request) if first else None)

    async def _dispatch_to_bolt(self, request: SocketModeRequest) -> Body | None:
        """Return Bolt's answer; None if it failed: the envelope is acknowledged all the same."""
        try:
            response = await run_async_bolt_app(self._bolt, request)
        except Exception:
            # Bolt parses a payload before its own error handling begins.
            log.exception("cannot handle an envelope from Slack")
            return None
        if response.status != 200:
            log.error("Bolt answered an envelope with status %d", response.status)
            return None
        return _get_response_payload(response) if request.accepts_response_payload else None


def _get_response_payload(response: BoltResponse) -> Body | None:
    if not response.body:
        return None
    kind = "".join(response.headers.get("content-type", [])[:1])
    return json.loads(response.body) if "json" in kind else {"text": response.body}


def _build_unavailable_response(request: SocketModeRequest) -> SocketModeResponse | None:
    if request.type != "slash_commands":
        return None
    message = {"response_type": "ephemeral", "text": STORE_UNAVAILABLE_MESSAGE}
    return SocketModeResponse(request.envelope_id, message)


class SocketModeConnection(SocketModeClient):
    """One connection; unlike the SDK's client it does not reconnect by itself.

    The SDK closes the old connection before it opens the next, reconnects without a pause, and
    may acknowledge an envelope on another connection than it came on.

    Attributes:
        needs_renewal: set once another connection is needed.
        has_ended: set once Slack sends nothing more on this one.
        is_greeted: whether Slack sent hello.
        reason: Slack's code for why it wants a new one; "" if the connection broke.
    """

    def __init__(
        self,
        client: AsyncWebClient,
        app_token: str,
        envelopes: EnvelopeHandler,
        *,
        ping_seconds: float,
        number: int,
    ) -> None:
        logger = log.getChild(str(number))
        # At debug level, the SDK logs all messages, including addresses that allow posting.
        logger.setLevel(logging.INFO)
        super().__init__(app_token, logger, client, ping_interval=ping_seconds)
        # Without a proxy the SDK uses HTTPS_PROXY, also for plain HTTP and despite NO_PROXY.
        self.proxy = client.proxy
        self.socket_mode_request_listeners.append(self._start_answer)
        self._envelopes = envelopes
        self._answer_tasks: set[asyncio.Task[Any]] = set()
        self._connect_timeout = asyncio.timeout(None)
        self._failure: BaseException | None = None
        self.needs_renewal, self.has_ended = asyncio.Event(), asyncio.Event()
        self.is_greeted, self.reason = False, ""

    @property
    def is_up(self) -> bool:
        """Whether Slack can send on this connection."""
        session = self.current_session
        is_open = session is not None and not session.closed
        return is_open and self.is_greeted and not self.needs_renewal.is_set()

    async def open_connection(self) -> None:
        """Connect. Raises the error of a failed attempt.

        The SDK would retry forever, with an address that works once, and log that address, which
        allows others to receive our messages.
        """
        self.wss_uri = await self.issue_new_wss_url()
        self.logger.addFilter(self._capture_failure)
        try:
            self._connect_timeout = asyncio.timeout(_CONNECT_TIMEOUT_SECONDS)
            async with self._connect_timeout:
                await self.connect()
        except TimeoutError as error:
            raise self._failure or error from None
        finally:
            self.logger.removeFilter(self._capture_failure)

    async def close_after_answers(self) -> None:
        """Wait for answers in progress, then close."""
        if self._answer_tasks:
            await asyncio.wait(self._answer_tasks, timeout=_FINISH_SECONDS)
        await self.close()

    async def connect_to_new_endpoint(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 - the SDK's
        """Request a new connection. force: Slack wants it; else this one has ended."""
        self.needs_renewal.set()
        if not force:
            self.has_ended.set()

    async def run_message_listeners(self, message: dict[str, Any], raw_message: str) -> None:
        """Record Slack's messages about the connection itself, then call the SDK's listeners."""
        if message.get("type") == "hello":
            self.is_greeted = True
        if message.get("type") == "disconnect" and not self.needs_renewal.is_set():
            self.reason = str(message.get("reason", ""))
        await super().run_message_listeners(message, raw_message)

    def _capture_failure(self, record: logging.LogRecord) -> bool:
        """End the attempt to connect at the first failure that the SDK logs."""
        if record.exc_info is None:
            return True
        self._failure = record.exc_info[1]
        self._connect_timeout.reschedule(asyncio.get_running_loop().time())
        return False

    async def _start_answer(
        self, _: AsyncBaseSocketModeClient, request: SocketModeRequest
    ) -> None:
        task = asyncio.create_task(self._acknowledge_envelope(request))
        self._answer_tasks.add(task)
        task.add_done_callback(self._answer_tasks.discard)
        await task

    async def _acknowledge_envelope(self, request: SocketModeRequest) -> None:
        response = await self._envelopes.acknowledge_envelope(request)
        if response is None:
            return
        try:
            await self.send_socket_mode_response(response)
        except ConnectionError:
            # Slack delivers it again, and the copy is dropped as known.
            log.warning("a connection ended before an envelope was acknowledged")


class SocketModeService:
    """Keeps the connections open. ping_seconds: to be set before it runs."""

    def __init__(
        self,
        client: AsyncWebClient,
        app_token: str,
        envelopes: EnvelopeHandler,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._token, self._envelopes = client, app_token, envelopes
        self._clock = clock
        self.ping_seconds = _PING_SECONDS
        self._connections: set[SocketModeConnection] = set()
        self._drain_tasks: set[asyncio.Task[None]] = set()
        self._error, self._is_token_refused = "", False
        # When a connection was last open, or when the service was created.
        self._last_connected_at = clock()

    @property
    def status(self) -> SocketModeStatus:
        up = sum(connection.is_up for connection in tuple(self._connections))
        error = "" if up == _CONNECTION_COUNT else self._error
        seconds_down = 0.0 if up else self._clock() - self._last_connected_at
        return SocketModeStatus(up, _CONNECTION_COUNT, error, self._is_token_refused, seconds_down)

    async def run_until_cancelled(self) -> None:
        """Receive until cancelled, or until Slack refuses the app token."""
        self._last_connected_at = self._clock()
        try:
            await asyncio.gather(*map(self._keep_connection, range(_CONNECTION_COUNT)))
        finally:
            for task in self._drain_tasks:
                task.cancel()
            open_ones = tuple(self._connections)
            await asyncio.gather(
                *(one.close_after_answers() for one in open_ones), return_exceptions=True
            )

    async def _keep_connection(self, number: int) -> None:
        """Keep one connection open and renew it as needed."""
        failures = 0
        while not self._is_token_refused:
            began = self._clock()
            connection = SocketModeConnection(
                self._client,
                self._token,
                self._envelopes,
                ping_seconds=self.ping_seconds,
                number=number,
            )
            self._connections.add(connection)
            try:
                await connection.open_connection()
                await connection.needs_renewal.wait()
            except Exception as error:  # noqa: BLE001 - as the SDK does: the next attempt may succeed
                self._record_failure(error)
            else:
                self._record_end(connection)
            self._drain_connection(connection)
            settled = connection.is_greeted and self._clock() - began > _SETTLED_SECONDS
            failures = 0 if settled else failures + 1
            if failures > 1:
                await asyncio.sleep(self.ping_seconds)

    def _record_failure(self, error: Exception) -> None:
        if isinstance(error, SlackApiError) and get_error_cause(error) in _TOKEN_ERRORS:
            self._error = (
                f"Slack refused the app token ({get_error_cause(error)}): {_CREDENTIALS_FIX}"
            )
            self._is_token_refused = True
            log.critical("cannot receive from Slack: %s", self._error)
            return
        self._error = _describe_failure(error, self._client.proxy or "")
        log.warning("a connection to Slack failed: %s", self._error)

    def _record_end(self, connection: SocketModeConnection) -> None:
        if connection.is_greeted:
            self._last_connected_at = self._clock()
        reason = connection.reason
        if reason in _DISCONNECT_REASONS or not reason:
            self._error = _DISCONNECT_REASONS.get(reason, "the connection broke")
            log.warning("a connection to Slack failed: %s", self._error)
        else:
            log.info("a connection to Slack is renewed: %s", reason)

    def _drain_connection(self, connection: SocketModeConnection) -> None:
        """Close a connection after Slack has ended it, or after a timeout."""

        async def drain() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await connection.has_ended.wait()
            await connection.close_after_answers()
            self._connections.discard(connection)

        seconds = _DRAIN_SECONDS if connection.needs_renewal.is_set() else 0
        task = asyncio.create_task(drain())
        self._drain_tasks.add(task)
        task.add_done_callback(self._drain_tasks.discard)


def _describe_failure(error: Exception, proxy: str) -> str:
    """Describe a failure without the address, which allows others to receive our messages."""
    if isinstance(error, SlackApiError):
        return f"Slack returned {get_error_cause(error)}"
    if isinstance(error, ClientResponseError) and not isinstance(error, ClientHttpProxyError):
        return f"Slack answered with HTTP status {error.status}"
    return self_check.explain_failure(error, proxy=proxy)
