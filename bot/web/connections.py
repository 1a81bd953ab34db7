"""Limits of the HTTP connections of this process: their number, and time to send and receive.

uvicorn limits neither the time that a request takes to arrive nor the number of idle connections,
so a thousand unfinished requests would use up all file descriptors.
"""

import asyncio
import ipaddress
import logging
import resource
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

log = logging.getLogger(__name__)

_MAX_DESCRIPTORS = 8192
_MOST_CONNECTIONS, _LARGEST_BACKLOG = 1000, 512
_WARN_SECONDS = 60.0
# Key in the state of an ASGI scope under which RequestTimeMiddleware finds the connection.
_CONNECTION_KEY = "keyturn.connection"


def raise_descriptor_limit() -> None:
    """Raise the limit of open files of this process to 8192, if the hard limit allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_MAX_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the connections of one server."""

    total: int
    per_address: int
    """Limit per client address."""
    backlog: int
    """Connections accepted at a time."""
    request_seconds: float = 15
    """Time for the head of a request to arrive, and again for its body."""
    unread_seconds: float = 30
    """Time after which a response of which nothing is read is given up."""
    proxies: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()
    """Addresses of reverse proxies, which count towards the total only."""

    @classmethod
    def create_for_process(cls, proxies: Iterable[str] = ()) -> Self:
        """Return limits that leave descriptors to SSH and the database.

        asyncio accepts up to four times the backlog before the first of them is closed again.
        """
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        descriptors = _MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
        total = min(_MOST_CONNECTIONS, descriptors * 3 // 8)
        return cls(
            total=total,
            per_address=max(1, total // 4),
            backlog=min(_LARGEST_BACKLOG, max(1, descriptors // 12)),
            proxies=[ipaddress.ip_network(one, strict=False) for one in proxies],
        )


class ConnectionRegistry:
    """The open connections of one server. Use it only in the event loop of the server.

    `closed_by_reason` counts the connections that were closed because of a limit.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.closed_by_reason: Counter[str] = Counter()
        # Open connections by address, and those waiting for a request, the longest waiting first.
        self._open_by_address: Counter[str] = Counter()
        self._waiting_connections: dict[Connection, None] = {}
        self._warned_at, self._closed_since_warning = float("-inf"), 0

    @property
    def open_count(self) -> int:
        return self._open_by_address.total()

    def admit_connection(self, connection: "Connection") -> bool:
        """Register a new connection. Return False if there is no room and it has to be closed.

        To make room, the connection that has waited longest for a request is closed. A client that
        sends its request immediately is therefore served, however many idle connections exist.
        """
        peer = connection.peer
        if self._open_by_address[peer] >= self.limits.per_address and not self._is_shared_address(
            peer
        ):
            if not self._close_longest_waiting(
                one for one in self._waiting_connections if one.peer == peer
            ):
                return self._refuse_connection(peer)
        elif self.open_count >= self.limits.total and not self._close_longest_waiting(
            self._waiting_connections
        ):
            return self._refuse_connection(peer)
        self._open_by_address[peer] += 1
        self.mark_waiting(connection)
        return True

    def mark_waiting(self, connection: "Connection") -> None:
        """Record that a connection waits for a request, or for the rest of one, from now on."""
        self._waiting_connections.pop(connection, None)
        self._waiting_connections[connection] = None

    def mark_working(self, connection: "Connection") -> None:
        """Record that a request is complete. Its connection is then not closed to make room."""
        self._waiting_connections.pop(connection, None)

    def remove_connection(self, connection: "Connection") -> None:
        """Forget a closed connection."""
        self._waiting_connections.pop(connection, None)
        self._open_by_address[connection.peer] -= 1
        if not self._open_by_address[connection.peer]:
            del self._open_by_address[connection.peer]

    def count_closed(self, reason: str, peer: str) -> None:
        """Count a connection closed because of a limit; log a warning at most once a minute."""
        self.closed_by_reason[reason] += 1
        self._closed_since_warning += 1
        now = time.monotonic()
        if now - self._warned_at < _WARN_SECONDS:
            return
        log.warning(
            "HTTP connections closed since the last warning: %d, the latest from %s: %s. Open: %d "
            "(limit %d, %d per address). If that is your reverse proxy, add it to KEYTURN_PROXIES",
            *(self._closed_since_warning, peer, reason, self.open_count),
            *(self.limits.total, self.limits.per_address),
        )
        self._warned_at, self._closed_since_warning = now, 0

    def _close_longest_waiting(self, candidates: Iterable["Connection"]) -> bool:
        longest = next(iter(candidates), None)
        if longest is None:
            return False
        longest.close_now("longest waiting when there was no room")
        return True

    def _refuse_connection(self, peer: str) -> bool:
        self.count_closed("no room", peer)
        return False

    def _is_shared_address(self, peer: str) -> bool:
        """Return whether the address may be a reverse proxy: a configured one, or a local one."""
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return address.is_loopback or any(address in network for network in self.limits.proxies)


class Connection(H11Protocol):
    """One connection. It is closed if no request arrives, or no response is read, in time.

    `peer` is the address of the client.
    """

    registry: ClassVar[ConnectionRegistry]
    """All connections of the server; each server has a subclass that sets it."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, _CONNECTION_KEY: self}, _loop)
        self._admitted = False
        self._timer: asyncio.TimerHandle | None = None
        self._requests = 0
        self._waiting_since: float | None = time.monotonic()
        self._unread, self._unread_since = 0, time.monotonic()
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.peer = self.client[0] if self.client else ""
        self._admitted = self.registry.admit_connection(self)
        if self._admitted:
            self._schedule_check()
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def close_now(self, reason: str) -> None:
        """Close the connection immediately, without a response."""
        self.registry.count_closed(reason, self.peer)
        self._stop_watching()
        self.transport.abort()

    async def handle_request(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Handle a request whose head has arrived, and limit the time for its body."""
        self._requests += 1
        self._mark_working()
        has_begun = False

        async def receive_in_time() -> Message:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                self._mark_waiting()
            message = await receive()
            if not message.get("more_body", False):
                self._mark_working()
            return message

        try:
            await app(scope, receive_in_time, send)
        finally:
            self._requests -= 1
            if not self._requests:
                self._mark_waiting()

    def _mark_waiting(self) -> None:
        if self._admitted:
            self._waiting_since = time.monotonic()
            self.registry.mark_waiting(self)

    def _mark_working(self) -> None:
        self._waiting_since = None
        self.registry.mark_working(self)

    def _schedule_check(self) -> None:
        self._timer = self.loop.call_later(
            self.registry.limits.request_seconds / 3, self._check_deadlines
        )

    def _check_deadlines(self) -> None:
        limits, now = self.registry.limits, time.monotonic()
        unread = self.transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._unread_since = now
        self._unread = unread
        if now - self._unread_since >= limits.unread_seconds:
            self.close_now("response not read in time")
        elif (
            not unread
            and self._waiting_since is not None
            and now - self._waiting_since >= limits.request_seconds
        ):
            self.close_now("no complete request in time")
        else:
            self._schedule_check()

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._admitted:
            self._admitted = False
            self.registry.remove_connection(self)


class RequestTimeMiddleware:
    """ASGI middleware that records when a connection works and when it waits for its client."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope.get("state", {}).pop(_CONNECTION_KEY, None)
        if isinstance(connection, Connection) and scope["type"] == "http":
            await connection.handle_request(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)
