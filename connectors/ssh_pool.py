"""SSH connection pool: connections are opened once, shared, kept open, and closed when idle."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from connectors import device, key_file, ssh
from connectors.api_client import ApiClient
from connectors.command import (
    NO_HOOKS,
    Answer,
    ApiCall,
    Command,
    Fetch,
    RemoteCommand,
    RunHooks,
    Shell,
    SnmpWalk,
    SwitchLines,
)
from connectors.errors import HostError, SetupError, UnreachableError
from connectors.https import Fetcher
from connectors.inventory import Host
from connectors.ssh_transport import ConnectionLostError, HostBusyError, SshLimits

T = TypeVar("T")

log = logging.getLogger(__name__)

# How many dropped connections are stored, and for how many seconds they count as recent.
_MAX_DROPS, _RECENT_SECONDS = 100, 300.0
# Seconds before each retry on a busy host, plus or minus half.
_RETRY_PAUSES = (0.3, 0.9)

# A host's session runs many commands at a time, a network device's session runs one.
Session = ssh.SshSession | device.DeviceSession
# What identifies a connection: if the inventory's entry of a host changes, so does the key.
_RouteKey = tuple[tuple[str, ...], ...]


@dataclass
class _PooledHost:
    """The connection of one route, and how many commands may use it at a time."""

    slots: threading.Semaphore
    """Limits the commands that run at a time."""
    user_count: int = 0
    """How many commands run or wait."""
    last_used: float = field(default_factory=time.monotonic)
    """When the last command ended, by the monotonic clock."""
    session: Session | None = None
    """The connection that was opened last. It may have ended since."""
    opening: Future[Session] | None = None
    """The same connection, for threads that wait until it is open."""
    earlier: list[ssh.SshSession] = field(default_factory=list[ssh.SshSession])
    """Connections before it, on which commands may still run."""


@dataclass(frozen=True)
class DroppedConnection:
    """A connection that Keyturn closed because the host flooded it or broke the protocol."""

    host: str
    reason: str
    at: float
    """When, by the monotonic clock."""


class SshPool:
    """Runs commands on hosts, over connections of its own. Any thread can use it.

    Args:
        keys: the directory that key files in the inventory are relative to.
        per_host: commands that run on one host at a time; sshd allows 10. Others wait.
        patience: seconds that a command waits for its turn.
        idle: seconds after which an unused connection is closed.
        limits: timeouts and sizes of each connection.
        fetcher: downloads documents; by default it caches them for a minute.
        api_client: calls management interfaces.
    """

    def __init__(
        self,
        keys: Path,
        *,
        per_host: int = 4,
        patience: float = 60.0,
        idle: float = 300.0,
        limits: SshLimits | None = None,
        fetcher: Fetcher | None = None,
        api_client: ApiClient | None = None,
    ) -> None:
        self._fetcher = fetcher or Fetcher(keys)
        self._api_client = api_client or ApiClient(keys)
        self._keys = keys
        # Returns the key of a file for a login over SSH.
        self.load_key: key_file.LoadKey = key_file.load_key
        self._per_host = per_host
        self._patience = patience
        self._idle = idle
        self._limits = replace(limits or SshLimits(), on_hang_up=self._record_drop)
        self._lock = threading.Lock()
        self._hosts: dict[_RouteKey, _PooledHost] = {}
        self._closed = threading.Event()
        self._sweeper: threading.Thread | None = None
        self._drops_lock = threading.Lock()
        self._drops = deque[DroppedConnection](maxlen=_MAX_DROPS)
        # How many connections were dropped since the start.
        self.drop_count = 0

    def run(
        self,
        host: Host,
        command: RemoteCommand,
        *,
        through: tuple[Host, ...] = (),
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        """Run a resolved command on *host*. through: its jump hosts, nearest to Keyturn first.

        Raises HostError, whose `started` says whether the command may have run.
        """
        if isinstance(command, Fetch):
            return self._fetcher.fetch(command)
        if isinstance(command, ApiCall):
            return self._api_client.call(host, command, hooks)
        route = (*through, host)
        with self._use_host(route) as pooled:
            if not pooled.slots.acquire(timeout=self._patience):
                raise UnreachableError(
                    f"{host.name} is busy: Keyturn already runs as many commands there as it "
                    f"allows, and none ended within {self._patience:g} s. Nothing was started. "
                    "Try again"
                )
            try:
                if isinstance(command, SnmpWalk) or host.snmp is not None:
                    from connectors import snmp  # slow to import

                    return snmp.run_command(host, self._keys, command, hooks)
                if command.new_connection:
                    return self._run_on_new_connection(route, command, hooks)
                return self._run_with_session(
                    route,
                    pooled,
                    lambda session: self._retry_when_busy(
                        lambda: _run_on_session(session, command, hooks)
                    ),
                )
            finally:
                pooled.slots.release()

    @property
    def open_count(self) -> int:
        """How many connections are open, as far as is known."""
        with self._lock:
            return sum(session.is_usable for session in self._list_sessions())

    def list_recent_drops(self) -> Sequence[DroppedConnection]:
        """Return the connections that were dropped in the last minutes."""
        since = time.monotonic() - _RECENT_SECONDS
        return [cut for cut in tuple(self._drops) if cut.at >= since]

    def close_idle(self, now: float) -> None:
        """Close every connection that is idle. now: by the monotonic clock."""
        with self._lock:
            carrying = [session.via for session in self._list_sessions() if session.via]
            over = [
                key for key, pooled in self._hosts.items() if self._is_idle(pooled, carrying, now)
            ]
            idle_hosts = [self._hosts.pop(key) for key in over]
        for pooled in idle_hosts:
            if pooled.session:
                pooled.session.close()

    def close(self) -> None:
        """Close every connection. Commands that are still running end as interrupted."""
        with self._lock:
            self._closed.set()
            # Connections through a jump host end before the jump host's own.
            for key in sorted(self._hosts, key=len, reverse=True):
                pooled = self._hosts[key]
                for session in (*pooled.earlier, pooled.session):
                    if session is not None:
                        session.close()
            self._hosts.clear()

    @contextmanager
    def _use_host(self, route: tuple[Host, ...]) -> Generator[_PooledHost]:
        key = _make_route_key(route)
        with self._lock:
            if self._closed.is_set():
                raise UnreachableError(
                    f"{route[-1].name} was not contacted: Keyturn is shutting down"
                )
            if key not in self._hosts:
                at_once = self._per_host if route[-1].platform == "linux" else 1
                self._hosts[key] = _PooledHost(threading.Semaphore(at_once))
            pooled = self._hosts[key]
            pooled.user_count += 1
        try:
            yield pooled
        finally:
            with self._lock:
                pooled.user_count -= 1
                pooled.last_used = time.monotonic()

    def _run_with_session(
        self, route: tuple[Host, ...], pooled: _PooledHost, act: Callable[[Session], T]
    ) -> T:
        """Call *act* with the open connection, and again with a new one if it was dead."""
        session, is_new = self._get_session(route, pooled)
        try:
            return act(session)
        except ConnectionLostError:
            if is_new:
                raise
        return act(self._get_session(route, pooled)[0])

    def _run_on_new_connection(
        self, route: tuple[Host, ...], command: Command, hooks: RunHooks
    ) -> Answer:
        """Run a command over a connection of its own, beside the shared one."""
        session = self._open_session(route)
        try:
            return self._retry_when_busy(lambda: _run_on_session(session, command, hooks))
        finally:
            session.close()

    def _get_session(self, route: tuple[Host, ...], pooled: _PooledHost) -> tuple[Session, bool]:
        """Return the shared connection, and whether this thread has just opened it.

        One thread opens it. Others wait and share the result, also an error.
        """
        warm = pooled.session
        if warm is not None and warm.is_usable:
            return warm, False
        with self._lock:
            slot = pooled.opening
            if slot is not None and not _is_unusable(slot):
                mine = None
            else:
                slot = mine = pooled.opening = Future[Session]()
        if mine is not None:
            self._open_shared_session(pooled, mine, route)
        return slot.result(), mine is not None

    def _open_shared_session(
        self, pooled: _PooledHost, slot: Future[Session], route: tuple[Host, ...]
    ) -> None:
        try:
            session = self._open_session(route)
        except BaseException as error:
            slot.set_exception(error)  # the waiting threads must receive every error
            raise
        with self._lock:
            too_late = self._closed.is_set()
            followed, pooled.session = pooled.session, session
            if isinstance(followed, ssh.SshSession):
                pooled.earlier = [
                    each for each in (*pooled.earlier, followed) if each.is_connected
                ]
            if self._sweeper is None and not too_late:
                self._sweeper = threading.Thread(target=self._close_idle_regularly, daemon=True)
                self._sweeper.start()
        if isinstance(followed, ssh.SshSession):
            followed.retire()
        elif followed is not None:
            followed.close()
        if too_late:
            session.close()
        slot.set_result(session)

    def _open_session(self, route: tuple[Host, ...]) -> Session:
        *jumps, host = route
        if not jumps:
            return self._connect(host, None)
        way = tuple(jumps)
        try:
            with self._use_host(way) as pooled:
                return self._run_with_session(way, pooled, lambda jump: self._connect(host, jump))
        except HostError as error:
            message = f"{host.name} is reached through {jumps[-1].name}: {error}"
            raise type(error)(message) from error

    def _connect(self, host: Host, via: Session | None) -> Session:
        if isinstance(via, device.DeviceSession):
            raise SetupError(
                f"{host.name} has a network device as its jump host: set `jump` in the inventory "
                "to a host with SSH"
            )
        keys, limits = self._keys, self._limits
        if host.platform != "linux":
            return self._retry_when_busy(lambda: device.connect(host, keys, limits, via=via))
        return self._retry_when_busy(
            lambda: ssh.connect(host, keys, limits, via=via, load_key=self.load_key)
        )

    def _retry_when_busy(self, act: Callable[[], T]) -> T:
        """Call *act*, and retry a little later if the host was busy."""
        for pause in _RETRY_PAUSES:
            try:
                return act()
            except HostBusyError:
                # Many threads are refused at the same time and must not retry at the same time.
                self._closed.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        return act()

    def _record_drop(self, host: str, why: str) -> None:
        log.warning("closed the connection to %s: %s", host, why)
        with self._drops_lock:
            self.drop_count += 1
            self._drops.append(DroppedConnection(host, why, time.monotonic()))

    def _list_sessions(self) -> list[Session]:
        return [session for pooled in self._hosts.values() if (session := pooled.session)]

    def _is_idle(self, pooled: _PooledHost, carrying: Sequence[object], now: float) -> bool:
        in_use = pooled.user_count > 0 or pooled.session in carrying
        return not in_use and now - pooled.last_used >= self._idle

    def _close_idle_regularly(self) -> None:
        while not self._closed.wait(self._idle / 4):
            self.close_idle(time.monotonic())


def _run_on_session(session: Session, command: Command, hooks: RunHooks) -> Answer:
    if isinstance(session, ssh.SshSession):
        if isinstance(command, Shell):
            return session.run(command, hooks)
    elif isinstance(command, SwitchLines):
        return session.run(command, hooks)
    raise SetupError(f"this kind of host cannot run the command. Nothing was sent: {command}")


def _make_route_key(route: tuple[Host, ...]) -> _RouteKey:
    return tuple(
        (
            *(host.name, host.address, str(host.port), host.user, host.platform),
            *(
                str(host.key),
                str(host.host_key),
                str(host.host_ca),
                str(host.password_file),
                str(host.enable_file),
            ),
        )
        for host in route
    )


def _is_unusable(slot: Future[Session]) -> bool:
    return slot.done() and (slot.exception() is not None or not slot.result().is_usable)
