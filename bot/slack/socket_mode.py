"""Socket Mode: Keyturn connects to Slack, so that nothing has to be open to the inside.

The client is slack_sdk's. Two connections stand: one is renewed while the other receives.
Source: https://docs.slack.dev/tools/python-slack-sdk/socket-mode/
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientHttpProxyError, ClientResponseError
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack import self_check
from bot.slack.client import error_of
from bot.slack.envelopes import Envelopes

log = logging.getLogger(__name__)

_CONNECTIONS = 2
# Between two pings of the SDK, and between two attempts to connect after the first.
_PING_SECONDS = 5.0
_CONNECTING_SECONDS = 20.0
# How long Slack may take to close what it wants renewed, and we to answer what came by it.
_DRAIN_SECONDS, _FINISH_SECONDS = 15.0, 3.0
# A connection that stood for so long is a success: the next attempt comes at once.
_SETTLED_SECONDS = 5.0
# What a person must correct. Asking again would not help.
# Source: https://docs.slack.dev/reference/methods/apps.connections.open
_REFUSALS = frozenset(
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
_REMEDY = (
    "make one with the scope connections:write (Basic Information, App-Level Tokens, of the Slack "
    "app), set KEYTURN_SLACK_APP_TOKEN to it, and start Keyturn again"
)
_REASONS = {
    "link_disabled": "Socket Mode is switched off in the settings of the Slack app",
    "too_many_websockets": "the Slack app has more connections than Slack allows",
}


@dataclass(frozen=True)
class SocketModeStatus:
    """The state of the connections to Slack.

    Attributes:
        up: how many connections Slack has greeted and can send by.
        wanted: how many there should be.
        trouble: what is wrong, in words; "" if nothing is.
        refused: Slack refused the app token, and is not asked again.
        seconds_down: for how long there has been no connection; 0 while there is one.
    """

    up: int
    wanted: int
    trouble: str = ""
    refused: bool = False
    seconds_down: float = 0.0


class Connection(SocketModeClient):
    """One connection: it ends where the SDK's client would reconnect by itself.

    The SDK closes the old connection before it opens the next, reconnects without a pause, and
    sends an acknowledgement by another connection than the envelope came by.

    Attributes:
        leaving: set once another connection is needed.
        ended: set once Slack sends nothing more by this one.
        is_greeted: whether Slack said hello.
        reason: Slack's word for why it wants another one; "" if the connection broke.
    """

    def __init__(
        self,
        client: AsyncWebClient,
        app_token: str,
        envelopes: Envelopes,
        *,
        ping_seconds: float,
        number: int,
    ) -> None:
        logger = log.getChild(str(number))
        # Below, the SDK logs all that arrives, with addresses that whoever has them can post to.
        logger.setLevel(logging.INFO)
        super().__init__(app_token, logger, client, ping_interval=ping_seconds)
        # Without a proxy the SDK takes HTTPS_PROXY, for plain HTTP and despite NO_PROXY too.
        self.proxy = client.proxy
        self.socket_mode_request_listeners.append(self._acknowledge)
        self._envelopes = envelopes
        self._answering: set[asyncio.Task[Any]] = set()
        self._limit = asyncio.timeout(None)
        self._failure: BaseException | None = None
        self.leaving, self.ended = asyncio.Event(), asyncio.Event()
        self.is_greeted, self.reason = False, ""

    @property
    def is_up(self) -> bool:
        session = self.current_session
        is_open = session is not None and not session.closed
        return is_open and self.is_greeted and not self.leaving.is_set()

    async def open(self) -> None:
        """Connect, or raise what prevents it.

        The SDK would try again for ever, with an address that works once, and log the address:
        whoever has it receives in our place.
        """
        self.wss_uri = await self.issue_new_wss_url()
        self.logger.addFilter(self._take_failure)
        try:
            self._limit = asyncio.timeout(_CONNECTING_SECONDS)
            async with self._limit:
                await self.connect()
        except TimeoutError as late:
            raise self._failure or late from None
        finally:
            self.logger.removeFilter(self._take_failure)

    async def finish(self) -> None:
        """Answer what is under way, and close."""
        if self._answering:
            await asyncio.wait(self._answering, timeout=_FINISH_SECONDS)
        await self.close()

    async def connect_to_new_endpoint(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 - the SDK's
        """Leave the next connection to SocketMode. force: Slack wants it; else this one ended."""
        self.leaving.set()
        if not force:
            self.ended.set()

    async def run_message_listeners(self, message: dict[str, Any], raw_message: str) -> None:
        """Note what Slack says of the connection itself, and go on as the SDK does."""
        if message.get("type") == "hello":
            self.is_greeted = True
        if message.get("type") == "disconnect" and not self.leaving.is_set():
            self.reason = str(message.get("reason", ""))
        await super().run_message_listeners(message, raw_message)

    def _take_failure(self, record: logging.LogRecord) -> bool:
        """End the attempt to connect at the failure that the SDK would log."""
        if record.exc_info is None:
            return True
        self._failure = record.exc_info[1]
        self._limit.reschedule(asyncio.get_running_loop().time())
        return False

    async def _acknowledge(self, _: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        task = asyncio.create_task(self._answer(request))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        await task

    async def _answer(self, request: SocketModeRequest) -> None:
        response = await self._envelopes.acknowledge(request)
        if response is None:
            return
        try:
            await self.send_socket_mode_response(response)
        except ConnectionError:
            # Slack delivers it again, and it is known by then.
            log.warning("a connection ended before what came by it was acknowledged")


class SocketMode:
    """Keeps the connections. Call run() in the event loop. ping_seconds: set it before that."""

    def __init__(
        self,
        client: AsyncWebClient,
        app_token: str,
        envelopes: Envelopes,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._token, self._envelopes = client, app_token, envelopes
        self._clock = clock
        self.ping_seconds = _PING_SECONDS
        self._connections: set[Connection] = set()
        self._draining: set[asyncio.Task[None]] = set()
        self._trouble, self._refused = "", False
        # When there was a connection last, or when we began to want one.
        self._last_up = clock()

    @property
    def status(self) -> SocketModeStatus:
        up = sum(connection.is_up for connection in tuple(self._connections))
        trouble = "" if up == _CONNECTIONS else self._trouble
        seconds_down = 0.0 if up else self._clock() - self._last_up
        return SocketModeStatus(up, _CONNECTIONS, trouble, self._refused, seconds_down)

    async def run(self) -> None:
        """Receive until cancelled, or until Slack refuses the app token."""
        self._last_up = self._clock()
        try:
            await asyncio.gather(*map(self._keep_connection, range(_CONNECTIONS)))
        finally:
            for task in self._draining:
                task.cancel()
            open_ones = tuple(self._connections)
            await asyncio.gather(*(one.finish() for one in open_ones), return_exceptions=True)

    async def _keep_connection(self, number: int) -> None:
        """Keep one connection up, renewed as often as it takes."""
        failures = 0
        while not self._refused:
            began = self._clock()
            connection = Connection(
                self._client,
                self._token,
                self._envelopes,
                ping_seconds=self.ping_seconds,
                number=number,
            )
            self._connections.add(connection)
            try:
                await connection.open()
                await connection.leaving.wait()
            except Exception as trouble:  # noqa: BLE001 - as the SDK: the next attempt may succeed
                self._note_failure(trouble)
            else:
                self._note_end(connection)
            self._drain(connection)
            settled = connection.is_greeted and self._clock() - began > _SETTLED_SECONDS
            failures = 0 if settled else failures + 1
            if failures > 1:
                await asyncio.sleep(self.ping_seconds)

    def _note_failure(self, trouble: Exception) -> None:
        if isinstance(trouble, SlackApiError) and error_of(trouble) in _REFUSALS:
            self._trouble = f"Slack refused the app token ({error_of(trouble)}): {_REMEDY}"
            self._refused = True
            log.critical("nothing arrives from Slack: %s", self._trouble)
            return
        self._trouble = _describe(trouble, self._client.proxy or "")
        log.warning("a connection to Slack failed: %s", self._trouble)

    def _note_end(self, connection: Connection) -> None:
        if connection.is_greeted:
            self._last_up = self._clock()
        reason = connection.reason
        if reason in _REASONS or not reason:
            self._trouble = _REASONS.get(reason, "the connection broke")
            log.warning("a connection to Slack failed: %s", self._trouble)
        else:
            log.info("a connection to Slack is renewed: %s", reason)

    def _drain(self, connection: Connection) -> None:
        """Close a connection once Slack has ended it, or did not for long."""

        async def drain() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await connection.ended.wait()
            await connection.finish()
            self._connections.discard(connection)

        seconds = _DRAIN_SECONDS if connection.leaving.is_set() else 0
        task = asyncio.create_task(drain())
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)


def _describe(trouble: Exception, proxy: str) -> str:
    """Say what is so, without the address: whoever has it can receive in our place."""
    if isinstance(trouble, SlackApiError):
        return f"Slack said {error_of(trouble)}"
    if isinstance(trouble, ClientResponseError) and not isinstance(trouble, ClientHttpProxyError):
        return f"Slack answered with status {trouble.status}"
    return self_check.explain_failure(trouble, proxy=proxy)
