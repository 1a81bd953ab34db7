"""A link: one Socket Mode connection, from Slack's greeting to its end."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import ClientError, ClientWebSocketResponse, WSMessage, WSMsgType

from bot.slack.envelopes import Envelopes
from bot.slack.request_body import Body, Malformed, parse

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """All in seconds.

    ping: between two signs of life that are asked for. silence: without any, nobody is there.
    drain: how long Slack may take to close what it wants renewed. finish: how long what is being
    answered may take at the end. first, longest: between two attempts to connect, at first and at
    most. settled: a connection that stood for so long is a success.
    """

    ping: float = 10
    silence: float = 30
    drain: float = 15
    finish: float = 3
    first: float = 1
    longest: float = 15
    settled: float = 5


class Link:
    """Answers each envelope on the connection it came by.

    greeted: Slack said hello. leaving: it takes no more, so another one is needed. why: Slack's
    word for that, such as `refresh_requested`; "" if the connection broke.
    """

    def __init__(
        self,
        socket: ClientWebSocketResponse,
        envelopes: Envelopes,
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket, self._envelopes = socket, envelopes
        self._patience, self._clock = patience, clock
        self._began = self._heard = clock()
        self._left = 0.0
        self._answering: set[asyncio.Task[None]] = set()
        self.greeted, self.leaving = asyncio.Event(), asyncio.Event()
        self.why = ""

    @property
    def up(self) -> bool:
        """Whether Slack sends by this connection."""
        return self.greeted.is_set() and not self.leaving.is_set() and not self._socket.closed

    async def hold(self) -> None:
        """Take what arrives until the connection ends, or nobody is there any more."""
        watchdog = asyncio.create_task(self._watch())
        try:
            async for message in self._socket:
                self._heard = self._clock()
                await self._take(message)
        except (ClientError, ConnectionError) as trouble:
            log.info("a connection to Slack broke: %s", type(trouble).__name__)
        finally:
            watchdog.cancel()
            self.leaving.set()
            await self._finish()

    async def _take(self, message: WSMessage) -> None:
        if message.type is WSMsgType.PING:
            await self._socket.pong(message.data)
        elif message.type is WSMsgType.TEXT:
            try:
                self._read(parse(message.data, "application/json"))
            except Malformed as trouble:
                log.warning("Slack sent what is no envelope: %s", trouble)

    def _read(self, said: Body) -> None:
        match said.get("type"):
            case "hello":
                self.greeted.set()
            case "disconnect":
                self._leave(said)
            case _:
                task = asyncio.create_task(self._answer(said))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    def _leave(self, said: Body) -> None:
        """Note that another connection is needed. `warning` comes before the request itself."""
        if not self.leaving.is_set():
            self.why = str(said.get("reason", ""))
            self._left = self._clock()
            self.leaving.set()

    async def _answer(self, envelope: Body) -> None:
        said = await self._envelopes.acknowledgement(envelope)
        if said is None:
            return
        try:
            await self._socket.send_str(json.dumps(said))
        except (ClientError, ConnectionError):
            # Slack delivers it again, and it is known by then.
            log.warning("a connection ended before what came by it was acknowledged")

    async def _watch(self) -> None:
        """Close a connection that looks open while nobody is there."""
        while not self._over():
            await asyncio.sleep(self._patience.ping)
            try:
                await self._socket.ping()
            except (ClientError, ConnectionError):
                break
        await self._socket.close()

    def _over(self) -> bool:
        now = self._clock()
        if self.leaving.is_set():
            return now - self._left > self._patience.drain
        last = self._heard if self.greeted.is_set() else self._began
        if now - last <= self._patience.silence:
            return False
        log.warning("a connection to Slack is silent for %.0f s: it is renewed", now - last)
        return True

    async def _finish(self) -> None:
        """Let what is being answered be answered, and close."""
        if self._answering:
            await asyncio.wait(self._answering, timeout=self._patience.finish)
        await self._socket.close()
