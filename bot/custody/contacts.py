"""Contacts: remembers how hosts are met by whatever is asked of them, and writes it down."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bot.store import contacts
from bot.store.contacts import Contact
from bot.store.database import Database
from connectors.trouble import (
    HostKeyMismatch,
    HostTrouble,
    Interrupted,
    LoginRefused,
    Unreachable,
    WeakAlgorithms,
)

_KINDS: tuple[tuple[type[HostTrouble], str], ...] = (
    (Unreachable, "unreachable"),
    (HostKeyMismatch, "key"),
    (LoginRefused, "login"),
    (WeakAlgorithms, "weak"),
    (Interrupted, "interrupted"),
)
_SECOND = 1_000_000


@dataclass
class _Met:
    """Times by the monotonic clock, in seconds."""

    met: float
    answered: float | None
    kind: str
    trouble: str


class Contacts:
    """Any thread may tell it; nobody waits for the database. clock: monotonic seconds."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._lock = threading.Lock()
        self._met: dict[str, _Met] = {}

    def note(self, host: str, trouble: HostTrouble | None) -> None:
        """Remember that a host answered, or what stood in the way."""
        kind = next((kind for known, kind in _KINDS if isinstance(trouble, known)), "")
        if trouble is not None and not kind:
            # What is missing on our side says nothing about the host.
            return
        now = self._clock()
        with self._lock:
            before = self._met.get(host)
            answered = before.answered if kind and before else None if kind else now
            self._met[host] = _Met(now, answered, kind, str(trouble) if trouble else "")

    def keep(self) -> None:
        """Write down what is new. Raises StoreUnavailable: then it is tried again next time."""
        with self._lock:
            fresh = dict(self._met)
        if not fresh:
            return
        with self._database.transaction() as tx:
            now = self._clock()

            def at(seconds: float) -> int:
                return tx.now - round((now - seconds) * _SECOND)

            contacts.keep(
                tx,
                [
                    Contact(
                        host,
                        met=at(one.met),
                        answered=None if one.answered is None else at(one.answered),
                        since=at(one.met),
                        kind=one.kind,
                        trouble=one.trouble,
                    )
                    for host, one in sorted(fresh.items())
                ],
            )
        with self._lock:
            for host, one in fresh.items():
                if self._met.get(host) is one:
                    del self._met[host]
