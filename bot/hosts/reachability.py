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

_MAX_ERROR_LENGTH = 500


@dataclass(frozen=True)
class LastContact:
    """Times are microseconds. met: the last time that the host was tried; answered: the last time
    that it answered. kind: what stood in the way when it was met, "" if nothing did: unreachable,
    key, login, weak, interrupted. since: when that was first so. trouble: it in words.
    """

    host: str
    tried_at: int
    answered_at: int | None
    since: int
    kind: str
    error: str


def store_contacts(tx: Transaction, contacts: Sequence[LastContact]) -> None:
    """Note how hosts were met, by two statements; what is known of a later time stays.

    since: of each, when it was met. answered: None for not now.
    """
    if not contacts:
        return
    known = list_contacts(tx)
    store = tx.insert_into(tables.host_contact)
    names = [column.name for column in tables.host_contact.columns if column.name != "host"]
    told = {name: store.excluded[name] for name in names}
    tx.sql.execute(
        store.on_conflict_do_update(index_elements=["host"], set_=told),
        [vars(_merge_contacts(tx, known.get(one.host), one)) for one in contacts],
    )


def _merge_contacts(tx: Transaction, stored: LastContact | None, new: LastContact) -> LastContact:
    """Return what is known of a host by then."""
    new = replace(new, error=_redact_and_truncate(tx, new.error))
    if stored is None:
        return new
    times = [one.answered_at for one in (stored, new) if one.answered_at is not None]
    latest = max(times, default=None)
    if new.tried_at < stored.tried_at:
        return replace(stored, answered_at=latest)
    since = stored.since if new.kind == stored.kind else new.tried_at
    return replace(new, answered_at=latest, since=since)


def list_contacts(tx: Transaction) -> Mapping[str, LastContact]:
    """Return all of them, by host."""
    return {row.host: _build_contact(row) for row in tx.sql.execute(select(tables.host_contact))}


def _build_contact(row: Sequence[object]) -> LastContact:
    host, met, answered, since, kind, trouble = row
    return LastContact(host, met, answered, since, kind, trouble)  # pyright: ignore[reportArgumentType] - the columns' types


def _redact_and_truncate(tx: Transaction, error: str) -> str:
    # PostgreSQL's text holds no NUL, and hosts may say anything.
    return tx.redactor.redact_text(error).replace("\0", "\\x00")[:_MAX_ERROR_LENGTH]


_CONTACT_KINDS: tuple[tuple[type[HostError], str], ...] = (
    (UnreachableError, "unreachable"),
    (HostKeyMismatchError, "key"),
    (LoginError, "login"),
    (WeakAlgorithmsError, "weak"),
    (UnknownOutcomeError, "interrupted"),
)
_MICROSECONDS_PER_SECOND = 1_000_000


@dataclass
class _UnwrittenContact:
    """Times by the monotonic clock, in seconds."""

    tried_at: float
    answered_at: float | None
    kind: str
    error: str


class ContactRecorder:
    """Any thread may tell it; nobody waits for the database. clock: monotonic seconds."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._lock = threading.Lock()
        self._unwritten: dict[str, _UnwrittenContact] = {}

    def record_contact(self, host: str, error: HostError | None) -> None:
        """Remember that a host answered, or what stood in the way."""
        kind = next((kind for known, kind in _CONTACT_KINDS if isinstance(error, known)), "")
        if error is not None and not kind:
            # What is missing on our side says nothing about the host.
            return
        now = self._clock()
        with self._lock:
            before = self._unwritten.get(host)
            answered = before.answered_at if kind and before else None if kind else now
            self._unwritten[host] = _UnwrittenContact(
                now, answered, kind, str(error) if error else ""
            )

    def write_contacts(self) -> None:
        """Write down what is new. Raises StoreUnavailable: then it is tried again next time."""
        with self._lock:
            fresh = dict(self._unwritten)
        if not fresh:
            return
        with self._database.transaction() as tx:
            now = self._clock()

            def at(seconds: float) -> int:
                return tx.now - round((now - seconds) * _MICROSECONDS_PER_SECOND)

            store_contacts(
                tx,
                [
                    LastContact(
                        host,
                        tried_at=at(one.tried_at),
                        answered_at=None if one.answered_at is None else at(one.answered_at),
                        since=at(one.tried_at),
                        kind=one.kind,
                        error=one.error,
                    )
                    for host, one in sorted(fresh.items())
                ],
            )
        with self._lock:
            for host, one in fresh.items():
                if self._unwritten.get(host) is one:
                    del self._unwritten[host]
