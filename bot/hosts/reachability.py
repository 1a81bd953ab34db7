"""The last contact with each host, recorded by runs and checks."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select

from bot.db import tables
from bot.db.database import Database, Transaction
from connectors.errors import (
    HostError,
    HostKeyMismatchError,
    LoginError,
    UnknownOutcomeError,
    UnreachableError,
    WeakAlgorithmsError,
)

_LONGEST = 500


@dataclass(frozen=True)
class LastContact:
    """Times are microseconds. met: the last time that the host was tried; answered: the last time
    that it answered. kind: what stood in the way when it was met, "" if nothing did: unreachable,
    key, login, weak, interrupted. since: when that was first so. trouble: it in words.
    """

    host: str
    met: int
    answered: int | None
    since: int
    kind: str
    trouble: str


def store_contacts(tx: Transaction, found: Sequence[LastContact]) -> None:
    """Note how hosts were met, by two statements; what is known of a later time stays.

    since: of each, when it was met. answered: None for not now.
    """
    if not found:
        return
    known = list_contacts(tx)
    store = tx.insert_into(tables.contact)
    names = [column.name for column in tables.contact.columns if column.name != "host"]
    told = {name: store.excluded[name] for name in names}
    tx.sql.execute(
        store.on_conflict_do_update(index_elements=["host"], set_=told),
        [vars(_later(tx, known.get(one.host), one)) for one in found],
    )


def _later(tx: Transaction, known: LastContact | None, new: LastContact) -> LastContact:
    """Return what is known of a host by then."""
    new = replace(new, trouble=_cut(tx, new.trouble))
    if known is None:
        return new
    times = [one.answered for one in (known, new) if one.answered is not None]
    latest = max(times, default=None)
    if new.met < known.met:
        return replace(known, answered=latest)
    since = known.since if new.kind == known.kind else new.met
    return replace(new, answered=latest, since=since)


def list_contacts(tx: Transaction) -> Mapping[str, LastContact]:
    """Return all of them, by host."""
    return {row.host: _contact(row) for row in tx.sql.execute(select(tables.contact))}


def _contact(row: Sequence[object]) -> LastContact:
    host, met, answered, since, kind, trouble = row
    return LastContact(host, met, answered, since, kind, trouble)  # pyright: ignore[reportArgumentType] - the columns' types


def _cut(tx: Transaction, trouble: str) -> str:
    # PostgreSQL's text holds no NUL, and hosts may say anything.
    return tx.redactor.text(trouble).replace("\0", "\\x00")[:_LONGEST]


_KINDS: tuple[tuple[type[HostError], str], ...] = (
    (UnreachableError, "unreachable"),
    (HostKeyMismatchError, "key"),
    (LoginError, "login"),
    (WeakAlgorithmsError, "weak"),
    (UnknownOutcomeError, "interrupted"),
)
_SECOND = 1_000_000


@dataclass
class _Met:
    """Times by the monotonic clock, in seconds."""

    met: float
    answered: float | None
    kind: str
    trouble: str


class ContactRecorder:
    """Any thread may tell it; nobody waits for the database. clock: monotonic seconds."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._lock = threading.Lock()
        self._met: dict[str, _Met] = {}

    def note(self, host: str, trouble: HostError | None) -> None:
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

            store_contacts(
                tx,
                [
                    LastContact(
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
