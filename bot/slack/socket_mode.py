"""Socket Mode: Keyturn calls Slack and listens, so that nothing has to be open to the inside.

Two connections, so that one can be renewed while the other takes what comes. A new one stands
before the old one is closed, and each envelope is acknowledged where it came from; the client of
slack_sdk 3.47 does neither, and asks with a token that Slack has refused for ever.
Source: https://docs.slack.dev/apis/events-api/using-socket-mode
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import (
    ClientError,
    ClientHttpProxyError,
    ClientResponseError,
    ClientSession,
    ClientWSTimeout,
)
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack import self_check
from bot.slack.client import error_of, retry_after
from bot.slack.envelopes import Envelopes
from bot.slack.link import Link, Patience

log = logging.getLogger(__name__)

_LINES = 2
_MOST_BYTES = 1024 * 1024
_CONNECTING_SECONDS = 20
_CLOSING = ClientWSTimeout(ws_close=2.0)  # pyright: ignore[reportCallIssue] - attrs class
# What a person must mend. Asking again would not.
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
_HOW_TO_MEND = (
    "make one with the scope connections:write (Basic Information, App-Level Tokens, of the Slack "
    "app), set KEYTURN_SLACK_APP_TOKEN to it, and start Keyturn again"
)
_REASONS = {
    "link_disabled": "Socket Mode is switched off in the settings of the Slack app",
    "too_many_websockets": "the Slack app has more connections than Slack allows",
}


class TokenRefused(Exception):
    """Slack does not take the app token. The message says why, and what to do."""


class _NoConnection(Exception):
    """There is none now. The message says why."""


@dataclass(frozen=True)
class Standing:
    """How many connections there are, and what is wrong; "" if nothing is.

    refused: Slack took the app token for none, and is not asked again. deaf: for how many seconds
    there has been no connection.
    """

    up: int
    wanted: int
    trouble: str = ""
    refused: bool = False
    deaf: float = 0.0


@dataclass
class Pause:
    """How long to wait before the next attempt to connect: longer each time.

    It begins anew once a connection has settled, and once Slack answers after it was not reached:
    what it says then, such as that it has a trouble of its own, is over soon.
    """

    patience: Patience
    tries: int = 0
    reached: bool = True

    def after(self, *, stood: float, reached: bool) -> float:
        """Return the seconds to wait. stood: how long the last connection did, 0 for none."""
        anew = stood > self.patience.settled or (reached and not self.reached)
        self.tries = 1 if anew else self.tries + 1
        self.reached = reached
        longer: float = 2.0 ** min(self.tries - 1, 10) - 1
        return min(longer * self.patience.first, self.patience.longest)


class SocketMode:
    """Call run() in the event loop. patience: with its connections, set before that."""

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
        self.patience = Patience()
        self._links: set[Link] = set()
        self._holding: set[asyncio.Task[None]] = set()
        self._trouble, self._refused = "", False
        # When there was a connection last, or when we began to want one.
        self._heard = clock()

    @property
    def standing(self) -> Standing:
        up = sum(link.up for link in self._links)
        trouble = "" if up == _LINES else self._trouble
        deaf = 0.0 if up else self._clock() - self._heard
        return Standing(up, _LINES, trouble, self._refused, deaf)

    async def run(self) -> None:
        """Listen until cancelled, or until Slack refuses the app token."""
        self._heard = self._clock()
        async with ClientSession() as session:
            try:
                await asyncio.gather(*(self._line(session) for _ in range(_LINES)))
                await asyncio.gather(*self._holding)
            finally:
                for task in self._holding:
                    task.cancel()
                await asyncio.gather(*self._holding, return_exceptions=True)

    async def _line(self, session: ClientSession) -> None:
        """Keep one connection, renewed as often as need be."""
        pause = Pause(self.patience)
        while not self._refused:
            stood, reached, wait = 0.0, True, None
            try:
                stood = await self._connected(session)
            except TokenRefused as trouble:
                self._trouble, self._refused = str(trouble), True
                log.critical("nothing arrives from Slack: %s", trouble)
                return
            except (_NoConnection, ClientError, SlackClientError, OSError) as trouble:
                wait = retry_after(trouble) if isinstance(trouble, SlackApiError) else None
                reached = _was_reached(trouble)
                self._trouble = _plainly(trouble, self._client.proxy or "")
                log.warning("a connection to Slack failed: %s", self._trouble)
            except Exception:
                self._trouble = (
                    "it failed in a way that nobody foresaw: the service's log says how"
                )
                log.exception("a connection to Slack failed")
            seconds = pause.after(stood=stood, reached=reached)
            # Lines that fell together shall not come back together.
            seconds *= 1 + random.random() / 4  # noqa: S311 - no secret
            await asyncio.sleep(seconds if wait is None else wait)

    async def _connected(self, session: ClientSession) -> float:
        """Return when another connection is needed, and for how many seconds this one stood.

        It goes on until Slack closes it.
        """
        async with asyncio.timeout(_CONNECTING_SECONDS):
            socket = await session.ws_connect(
                await self._address(),
                autoping=False,
                max_msg_size=_MOST_BYTES,
                proxy=self._client.proxy,
                timeout=_CLOSING,
            )
        link = Link(socket, self._envelopes, self.patience, self._clock)
        self._links.add(link)
        began = self._clock()
        holding = asyncio.create_task(link.hold())
        self._holding.add(holding)
        holding.add_done_callback(lambda _: self._links.discard(link))
        holding.add_done_callback(self._holding.discard)
        await link.leaving.wait()
        if link.greeted.is_set():
            self._heard = self._clock()
        if link.why in _REASONS:
            raise _NoConnection(_REASONS[link.why])
        if not link.why:
            self._trouble = "the connection broke"
        log.info("a connection to Slack is renewed: %s", link.why or "it broke")
        return self._clock() - began if link.greeted.is_set() else 0.0

    async def _address(self) -> str:
        """Ask Slack where to connect. Whoever has the address can listen: it is never shown."""
        try:
            opened = await self._client.apps_connections_open(app_token=self._token)
        except SlackApiError as refused:
            if error_of(refused) in _REFUSALS:
                raise TokenRefused(
                    f"Slack refused the app token ({error_of(refused)}): {_HOW_TO_MEND}"
                ) from None
            raise
        address = str(opened.get("url", ""))
        secure = urlsplit(self._client.base_url).scheme == "https"
        if urlsplit(address).scheme not in ({"wss"} if secure else {"ws", "wss"}):
            raise _NoConnection("Slack gave an address that is no WebSocket over TLS")
        return address


def _was_reached(trouble: Exception) -> bool:
    """Return whether it was Slack that answered, whatever it said."""
    if isinstance(trouble, ClientHttpProxyError):
        return False
    return isinstance(trouble, (_NoConnection, SlackApiError, ClientResponseError))


def _plainly(trouble: Exception, proxy: str) -> str:
    """Say what is so, without the address: it lets whoever has it listen."""
    match trouble:
        case _NoConnection():
            return str(trouble)
        case SlackApiError():
            return f"Slack said {error_of(trouble)}"
        case ClientHttpProxyError():
            return self_check.explain_failure(trouble, proxy=proxy)
        case ClientResponseError():
            return f"Slack answered with status {trouble.status}"
        case _:
            return self_check.explain_failure(trouble, proxy=proxy)
