"""Connections to every host in use: opened once, shared, kept warm, closed together."""

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

from connectors import device, ssh
from connectors.command import Answer, Command, Errand, Fetch, Shell
from connectors.feed import Feeds
from connectors.inventory import Host
from connectors.transport import Gone, Limits, TurnedAway
from connectors.trouble import HostTrouble, NotSetUp, Unreachable

T = TypeVar("T")

log = logging.getLogger(__name__)

# Of those that we hung up on, so many are remembered, and so long they are spoken of.
_CUTS_KEPT, _LATELY_SECONDS = 100, 300.0
# Seconds to wait before one more try, give or take a half, where a host turned us away unheard.
_PAUSES = (0.3, 0.9)

# A host's, on which many commands run at once, or a network device's, on which one does.
Session = ssh.Session | device.Session
# All that makes a connection the same one: a host that the inventory describes anew gets another.
_Line = tuple[tuple[str, ...], ...]


@dataclass
class _Seat:
    """What belongs to one line: its connection, and how many commands may use it at once.

    warm: the last connection that was opened, which may have ended since. opening: the same, for
    whoever waits for it. left: those before it, on which something may still be under way.
    """

    turns: threading.Semaphore
    users: int = 0
    last_used: float = field(default_factory=time.monotonic)
    warm: Session | None = None
    opening: Future[Session] | None = None
    left: list[ssh.Session] = field(default_factory=list[ssh.Session])


@dataclass(frozen=True)
class Cut:
    """A connection that we hung up on, since its host flooded us or broke the protocol.

    at: when, by the monotonic clock.
    """

    host: str
    why: str
    at: float


class Sessions:
    """Runs commands on hosts, over connections of its own. Any thread may use it.

    keys: the directory that key files in the inventory are relative to.
    per_host: commands that run on one host at once; sshd allows 10. More wait their turn.
    patience: seconds that a command waits for its turn.
    idle: seconds after which a connection that nobody uses is closed.
    feeds: gets what is not on hosts; by default it keeps a document for a minute.
    """

    def __init__(
        self,
        keys: Path,
        *,
        per_host: int = 4,
        patience: float = 60.0,
        idle: float = 300.0,
        limits: Limits | None = None,
        feeds: Feeds | None = None,
    ) -> None:
        self._feeds = feeds or Feeds(keys)
        self._keys = keys
        self._per_host = per_host
        self._patience = patience
        self._idle = idle
        self._limits = replace(limits or Limits(), on_cut=self._note_cut)
        self._lock = threading.Lock()
        self._seats: dict[_Line, _Seat] = {}
        self._closed = threading.Event()
        self._sweeper: threading.Thread | None = None
        self._cutting = threading.Lock()
        self._cuts = deque[Cut](maxlen=_CUTS_KEPT)
        # How many connections we have hung up on.
        self.cuts = 0

    def run(self, host: Host, command: Errand, *, through: tuple[Host, ...] = ()) -> Answer:
        """Run a resolved command on *host*, reached through its jump hosts, the first one first.

        Raises HostTrouble, whose `started` tells whether the command may have run.
        """
        if isinstance(command, Fetch):
            return self._feeds.fetch(command)
        route = (*through, host)
        with self._seat(route) as seat:
            if not seat.turns.acquire(timeout=self._patience):
                raise Unreachable(
                    f"{host.name} is busy: as many of our commands as it takes at once have been "
                    f"running there for {self._patience:g} s. Nothing was started; ask again"
                )
            try:
                if isinstance(command, Shell) and command.anew:
                    return self._told_anew(route, command)
                return self._on(
                    route, seat, lambda session: self._patiently(lambda: _told(session, command))
                )
            finally:
                seat.turns.release()

    @property
    def open(self) -> int:
        """How many connections stand, as far as is known."""
        with self._lock:
            return sum(session.alive for session in self._warm())

    def cut_lately(self) -> Sequence[Cut]:
        """Return the connections that we hung up on in the last minutes."""
        since = time.monotonic() - _LATELY_SECONDS
        return [cut for cut in tuple(self._cuts) if cut.at >= since]

    def evict(self, now: float) -> None:
        """Close every connection that nobody has used for long enough. *now* is monotonic."""
        with self._lock:
            carrying = [session.via for session in self._warm() if session.via]
            over = [
                line for line, seat in self._seats.items() if self._is_over(seat, carrying, now)
            ]
            seats = [self._seats.pop(line) for line in over]
        for seat in seats:
            if seat.warm:
                seat.warm.close()

    def close(self) -> None:
        """Close every connection; what is still running ends as interrupted."""
        with self._lock:
            self._closed.set()
            # Those behind a jump host end before the jump host's own.
            for line in sorted(self._seats, key=len, reverse=True):
                seat = self._seats[line]
                for session in (*seat.left, seat.warm):
                    if session is not None:
                        session.close()
            self._seats.clear()

    @contextmanager
    def _seat(self, route: tuple[Host, ...]) -> Generator[_Seat]:
        line = _line(route)
        with self._lock:
            if self._closed.is_set():
                raise Unreachable(f"{route[-1].name} was not asked: we are shutting down")
            if line not in self._seats:
                at_once = self._per_host if route[-1].platform == "linux" else 1
                self._seats[line] = _Seat(threading.Semaphore(at_once))
            seat = self._seats[line]
            seat.users += 1
        try:
            yield seat
        finally:
            with self._lock:
                seat.users -= 1
                seat.last_used = time.monotonic()

    def _on(self, route: tuple[Host, ...], seat: _Seat, act: Callable[[Session], T]) -> T:
        """Act on the warm connection, or on a new one if it turns out to be dead unheard."""
        session, is_new = self._session(route, seat)
        try:
            return act(session)
        except Gone:
            if is_new:
                raise
        return act(self._session(route, seat)[0])

    def _told_anew(self, route: tuple[Host, ...], command: Shell) -> Answer:
        """Run a command over a connection of its own, beside the warm one."""
        session = self._open(route)
        try:
            return self._patiently(lambda: _told(session, command))
        finally:
            session.close()

    def _session(self, route: tuple[Host, ...], seat: _Seat) -> tuple[Session, bool]:
        """Return the seat's connection and whether it was opened just now.

        One thread opens it; the others wait and share what comes of that, trouble too.
        """
        warm = seat.warm
        if warm is not None and warm.alive:
            return warm, False
        with self._lock:
            slot = seat.opening
            if slot is not None and not _is_spent(slot):
                mine = None
            else:
                slot = mine = seat.opening = Future[Session]()
        if mine is not None:
            self._fill(seat, mine, route)
        return slot.result(), mine is not None

    def _fill(self, seat: _Seat, slot: Future[Session], route: tuple[Host, ...]) -> None:
        try:
            session = self._open(route)
        except BaseException as trouble:
            slot.set_exception(trouble)  # whoever waits for it must hear of it, whatever it is
            raise
        with self._lock:
            too_late = self._closed.is_set()
            followed, seat.warm = seat.warm, session
            if isinstance(followed, ssh.Session):
                seat.left = [each for each in (*seat.left, followed) if each.stands]
            if self._sweeper is None and not too_late:
                self._sweeper = threading.Thread(target=self._sweep, daemon=True)
                self._sweeper.start()
        if isinstance(followed, ssh.Session):
            followed.retire()
        elif followed is not None:
            followed.close()
        if too_late:
            session.close()
        slot.set_result(session)

    def _open(self, route: tuple[Host, ...]) -> Session:
        *jumps, host = route
        if not jumps:
            return self._connect(host, None)
        way = tuple(jumps)
        try:
            with self._seat(way) as seat:
                return self._on(way, seat, lambda jump: self._connect(host, jump))
        except HostTrouble as trouble:
            words = f"{host.name} is reached through {jumps[-1].name}: {trouble}"
            raise type(trouble)(words) from trouble

    def _connect(self, host: Host, via: Session | None) -> Session:
        if isinstance(via, device.Session):
            raise NotSetUp(
                f"{host.name} is reached through a network device: name a host for that"
            )
        connect = ssh.connect if host.platform == "linux" else device.connect
        return self._patiently(lambda: connect(host, self._keys, self._limits, via=via))

    def _patiently(self, act: Callable[[], T]) -> T:
        """Try again, a little later, what a host refused because it was busy."""
        for pause in _PAUSES:
            try:
                return act()
            except TurnedAway:
                # Many are turned away at once: they must not come back at once.
                self._closed.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        return act()

    def _note_cut(self, host: str, why: str) -> None:
        log.warning("hung up on %s, since %s", host, why)
        with self._cutting:
            self.cuts += 1
            self._cuts.append(Cut(host, why, time.monotonic()))

    def _warm(self) -> list[Session]:
        return [session for seat in self._seats.values() if (session := seat.warm)]

    def _is_over(self, seat: _Seat, carrying: Sequence[object], now: float) -> bool:
        in_use = seat.users > 0 or seat.warm in carrying
        return not in_use and now - seat.last_used >= self._idle

    def _sweep(self) -> None:
        while not self._closed.wait(self._idle / 4):
            self.evict(time.monotonic())


def _told(session: Session, command: Command) -> Answer:
    if isinstance(session, ssh.Session):
        if isinstance(command, Shell):
            return session.run(command)
    elif not isinstance(command, Shell):
        return session.run(command)
    raise NotSetUp(f"this is not for such a host, and nothing was sent: {command}")


def _line(route: tuple[Host, ...]) -> _Line:
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


def _is_spent(slot: Future[Session]) -> bool:
    return slot.done() and (slot.exception() is not None or not slot.result().alive)
