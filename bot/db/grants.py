"""Standing grants: changes that are approved in advance, and their uses."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import Row, Select, func, insert, or_, select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.model.canonical import encode_canonical
from bot.model.errors import InvalidRequestError
from bot.model.grant_words import NewGrant
from bot.model.run import Run, State
from bot.model.times import HOUR

_ROW = tables.standing_grant.c
_USE = tables.grant_use.c


class NoSuchGrant(InvalidRequestError):
    """There is no grant with this number."""


@dataclass(frozen=True)
class Grant:
    """granted_by approves requests of person in advance, at most per_hour of them an hour.

    hosts, values: patterns with * and ?; values by field. A field without a pattern may have any
    value. Times are microseconds.
    """

    id: int
    person: str
    runbook: str
    hosts: str
    per_hour: int
    granted_by: str
    created_at: int
    ends_at: int
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    revoked_at: int | None = None
    reason: str = ""

    def holds(self, now: int) -> bool:
        return self.revoked_at is None and now < self.ends_at

    def covers(self, run: Run) -> bool:
        """Return whether the grant covers the run: a change on one host that is not an undo."""
        return (
            (run.requested_by, run.runbook, run.kind) == (self.person, self.runbook, "change")
            and not run.hosts
            and run.parent is None
            and run.undo_of is None
            and run.timing is None
            and not run.origin.schedule_id
            and self.covers_values(run.host, run.values)
        )

    def covers_values(self, host: str, values: Mapping[str, str]) -> bool:
        """Return whether host and values match the patterns of the grant."""
        return fnmatchcase(host, self.hosts) and all(
            fnmatchcase(values.get(name, ""), pattern) for name, pattern in self.values.items()
        )

    @property
    def what(self) -> str:
        """The granted request, as it is typed: `abusers clear lb* table=http`."""
        values = [f"{name}={pattern}" for name, pattern in self.values.items()]
        return " ".join([self.runbook, self.hosts, *values])


def add_grant(tx: Transaction, new: NewGrant, *, giver: str, reason: str) -> Grant:
    row = tx.sql.execute(
        insert(tables.standing_grant)
        .values(
            person=new.person,
            runbook=new.runbook,
            hosts=new.hosts,
            value_patterns=encode_canonical(new.values),
            per_hour=new.per_hour,
            granted_by=giver,
            created_at=tx.now,
            ends_at=new.ends_at,
            reason=reason,
        )
        .returning(tables.standing_grant)
    ).one()
    return _build_grant(row)


def get_grant(tx: Transaction, number: int) -> Grant:
    return _read_grant(tx, select(tables.standing_grant), number)


def lock_grant(tx: Transaction, number: int) -> Grant:
    """Return the grant and lock its row, so that no other transaction uses or revokes it."""
    return _read_grant(tx, select(tables.standing_grant).with_for_update(), number)


def revoke_grant(tx: Transaction, number: int) -> None:
    tx.sql.execute(
        update(tables.standing_grant).where(_ROW.id == number).values(revoked_at=tx.now)
    )


def list_active_grants(tx: Transaction, *, person: str, words: str) -> Sequence[Grant]:
    """Return a person's active grants of a runbook, the oldest first."""
    query = select(tables.standing_grant).where(
        _ROW.person == person,
        _ROW.runbook == words,
        _ROW.revoked_at.is_(None),
        _ROW.ends_at > tx.now,
    )
    return [_build_grant(row) for row in tx.sql.execute(query.order_by(_ROW.id))]


def list_newest_active_grants(tx: Transaction, person: str = "") -> Sequence[Grant]:
    """Return the active grants, the newest first. person: only those by and to this person."""
    query = select(tables.standing_grant).where(_ROW.revoked_at.is_(None), _ROW.ends_at > tx.now)
    if person:
        query = query.where(or_(_ROW.person == person, _ROW.granted_by == person))
    return [_build_grant(row) for row in tx.sql.execute(query.order_by(_ROW.id.desc()))]


def count_taken(tx: Transaction, grant: int, *, except_run: int | None = None) -> int:
    """Count the uses of the last hour and the queued and starting runs of a grant.

    except_run: a run that is not counted. Lock the grant first, so that the count stays correct.
    """
    run = tables.run.c
    on_their_way = select(func.count()).where(
        run.grant_id == grant,
        run.state.in_([State.QUEUED.value, State.STARTING.value]),
        run.id != (except_run or 0),
    )
    return count_used(tx, grant, except_run=except_run) + tx.sql.execute(on_their_way).scalar_one()


def count_uses_left(tx: Transaction, grant: Grant) -> int:
    """Return how often the grant may still be used this hour."""
    return max(grant.per_hour - count_taken(tx, grant.id), 0)


def count_left(tx: Transaction, given: Grant, run: int) -> int:
    """Return how many uses were left within the hour after this run."""
    at = tx.sql.execute(select(_USE.used_at).where(_USE.run == run)).scalar_one_or_none()
    if at is None:
        return count_uses_left(tx, given)
    query = select(func.count()).where(
        _USE.grant_id == given.id, _USE.used_at > at - HOUR, _USE.used_at <= at
    )
    return max(given.per_hour - tx.sql.execute(query).scalar_one(), 0)


def count_used(tx: Transaction, grant: int, *, except_run: int | None = None) -> int:
    """Count the uses of the last hour. except_run: a run that is not counted."""
    query = select(func.count()).where(
        _USE.grant_id == grant, _USE.used_at > tx.now - HOUR, _USE.run != (except_run or 0)
    )
    return tx.sql.execute(query).scalar_one()


def record_use(tx: Transaction, grant: int, run: int) -> None:
    """Record that the grant approved this run."""
    tx.sql.execute(insert(tables.grant_use).values(run=run, grant_id=grant, used_at=tx.now))


def _read_grant(tx: Transaction, query: Select[Any], number: int) -> Grant:
    row = tx.sql.execute(query.where(_ROW.id == number)).one_or_none()
    if row is None:
        raise NoSuchGrant(f"there is no grant {number}")
    return _build_grant(row)


def _build_grant(row: Row[Any]) -> Grant:
    return Grant(
        id=row.id,
        person=row.person,
        runbook=row.runbook,
        hosts=row.hosts,
        values=json.loads(row.value_patterns),
        per_hour=row.per_hour,
        granted_by=row.granted_by,
        created_at=row.created_at,
        ends_at=row.ends_at,
        revoked_at=row.revoked_at,
        reason=row.reason,
    )
