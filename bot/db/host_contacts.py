"""The last contact with each host, recorded by runs and checks."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select

from bot.db import tables
from bot.db.database import Database, Transaction
from bot.model.times import SECOND
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
    """The last contact with one host. Times are microseconds since 1970."""

    host: str
    tried_at: int
    """The last connection attempt."""
    answered_at: int | None
    """The last time that the host answered."""
    since: int
    """When *kind* became what it is."""
    kind: str
    """The problem: `unreachable`, `key`, `login`, `weak` or `interrupted`; "" without one."""
    error: str
    """The last failure in words, also if the host has answered since; "" without one."""
    failed_at: int | None = None
    """The last failure."""


def store_contacts(tx: Transaction, contacts: Sequence[LastContact]) -> None:
    """Store the contacts with hosts, in two statements; a later stored contact is kept.

    Give each contact its tried_at as since, and None as answered_at if the host did not answer.
    """
    if not contacts:
        return
    known = list_contacts(tx)
    store = tx.insert_into(tables.host_contact)
    names = [column.name for column in tables.host_contact.columns if column.name != "host"]
    values = {name: store.excluded[name] for name in names}
    tx.sql.execute(
        store.on_conflict_do_update(index_elements=["host"], set_=values),
        [vars(_merge_contacts(tx, known.get(one.host), one)) for one in contacts],
    )


def _merge_contacts(tx: Transaction, stored: LastContact | None, new: LastContact) -> LastContact:
    """Return the contact that results from a stored and a new one."""
    new = replace(new, error=_redact_and_truncate(tx, new.error))
    if stored is None:
        return new
    answered = [one.answered_at for one in (stored, new) if one.answered_at is not None]
    failed = max((new, stored), key=lambda one: one.failed_at or 0)
    newest = stored if new.tried_at < stored.tried_at else new
    return replace(
        newest,
        answered_at=max(answered, default=None),
        since=stored.since if newest.kind == stored.kind else newest.tried_at,
        error=failed.error,
        failed_at=failed.failed_at,
    )


def list_contacts(tx: Transaction) -> Mapping[str, LastContact]:
    """Return the last contacts by host."""
    return {row.host: LastContact(*row) for row in tx.sql.execute(select(tables.host_contact))}


def _redact_and_truncate(tx: Transaction, error: str) -> str:
    return tx.redactor.redact_for_storage(error)[:_MAX_ERROR_LENGTH]


_CONTACT_KINDS: tuple[tuple[type[HostError], str], ...] = (
    (UnreachableError, "unreachable"),
    (HostKeyMismatchError, "key"),
    (LoginError, "login"),
    (WeakAlgorithmsError, "weak"),
    (UnknownOutcomeError, "interrupted"),
)


@dataclass
class _UnwrittenContact:
    """A contact that is not stored yet. Times are seconds of the monotonic clock."""

    tried_at: float
    answered_at: float | None
    kind: str
    error: str
    failed_at: float | None


class ContactRecorder:
    """Collects contacts from any thread, without waiting for the database.

    clock: returns monotonic seconds.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._lock = threading.Lock()
        self._unwritten: dict[str, _UnwrittenContact] = {}

    def record_contact(self, host: str, error: HostError | None) -> None:
        """Remember that a host answered, or the error."""
        kind = next((kind for known, kind in _CONTACT_KINDS if isinstance(error, known)), "")
        if error is not None and not kind:
            # An error of the installation, such as a missing key file, is no fact about the host.
            return
        now = self._clock()
        with self._lock:
            before = self._unwritten.get(host)
            answered = before.answered_at if kind and before else None if kind else now
            failure = (str(error), now) if error else ("", None)
            if before and not error:
                failure = (before.error, before.failed_at)
            self._unwritten[host] = _UnwrittenContact(now, answered, kind, *failure)

    def write_contacts(self) -> None:
        """Store the new contacts. If it raises StoreUnavailable, the next call tries again."""
        with self._lock:
            fresh = dict(self._unwritten)
        if not fresh:
            return
        with self._database.transaction() as tx:
            now = self._clock()

            def at(seconds: float) -> int:
                return tx.now - round((now - seconds) * SECOND)

            def at_if_any(seconds: float | None) -> int | None:
                return None if seconds is None else at(seconds)

            store_contacts(
                tx,
                [
                    LastContact(
                        host,
                        tried_at=at(one.tried_at),
                        answered_at=at_if_any(one.answered_at),
                        since=at(one.tried_at),
                        kind=one.kind,
                        error=one.error,
                        failed_at=at_if_any(one.failed_at),
                    )
                    for host, one in sorted(fresh.items())
                ],
            )
        with self._lock:
            for host, one in fresh.items():
                if self._unwritten.get(host) is one:
                    del self._unwritten[host]
