"""Rows of drift: what runs gave a lasting value, and how it was at its last reading."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Row, Select, delete, func, select, update

from bot.db import tables, view_conditions
from bot.db.database import Transaction
from bot.features.drift.state import Candidate, Expectation, parse_range
from bot.model.drift_state import DriftState
from connectors.errors import DomainError

_row = tables.drift_key.c


@dataclass(frozen=True)
class DriftKey:
    """A value that Keyturn set and watches. Times are microseconds since 1970, UTC."""

    id: int
    host: str
    name: str
    """What was set on the host, such as `shaping eth0`."""
    run: int
    """The run that set it."""
    state: DriftState
    since_at: int
    """When it came into this state: the first reading in it."""
    good_at: int
    """The last reading in which it was as set, adopted or expected."""
    read_at: int
    """The last reading."""
    next_at: int
    """When it is read next."""
    requested_at: int | None
    """When a person asked for a reading that is not recorded yet; None if no one did."""
    digest: str
    """Of the value on the host; "" if it is as the run set it."""
    value: str
    """The value on the host, or why it could not be read; "" before the first reading."""
    set_value: str
    """The value that the run set, or that a person adopted."""
    adopted: str
    """The digest of the value that a person adopted; "" for the run's own."""
    candidates: Sequence[Candidate]
    """What happened on the host while it changed."""
    announced_at: int | None
    """When the message to chat was requested; None if none was."""
    expectation: Expectation | None

    @property
    def expected_until(self) -> int | None:
        return self.expectation.until if self.expectation else None

    @property
    def expected_range(self) -> str:
        """The expected numbers as people type them: `1000..2000`; "" for any."""
        return format_range(self.expectation)


class NoSuchKeyError(DomainError):
    """No watched value has this number, or it may not be viewed."""

    code, status = "not-found", 404

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no watched value {number}: `keyturn drift list` lists them")


def find_key(tx: Transaction, host: str, name: str) -> DriftKey | None:
    query = select(tables.drift_key).where(_row.host == host, _row.name == name)
    row = tx.sql.execute(query).one_or_none()
    return _build_key(row) if row else None


def set_key(
    tx: Transaction, host: str, name: str, *, run: int, set_value: str, next_at: int
) -> None:
    """Watch the value that a run has just set."""
    values: dict[str, object] = {
        **dict.fromkeys(("since_at", "good_at", "read_at"), tx.now),
        **dict.fromkeys(("digest", "value", "adopted", "expected_range"), ""),
        "run": run,
        "state": DriftState.AS_SET.value,
        "next_at": next_at,
        "set_value": tx.redactor.redact_for_storage(set_value),
        "candidates": "[]",
        "expected_until": None,
        "requested_at": None,
    }
    store = tx.insert_into(tables.drift_key)
    tx.sql.execute(
        store.on_conflict_do_update(index_elements=["host", "name"], set_=values),
        {"host": host, "name": name, **values},
    )


def delete_key(tx: Transaction, number: int) -> None:
    tx.sql.execute(delete(tables.drift_key).where(_row.id == number))


def get_key(tx: Transaction, number: int) -> DriftKey:
    """Return a key. Raises NoSuchKeyError."""
    return _read_one(tx, select(tables.drift_key).where(_row.id == number), number)


def lock_key(tx: Transaction, number: int) -> DriftKey:
    """Return a key and lock it until this transaction ends. Raises NoSuchKeyError."""
    query = select(tables.drift_key).where(_row.id == number).with_for_update()
    return _read_one(tx, query, number)


def list_keys(
    tx: Transaction, *, host: str = "", state: DriftState | None = None, most: int = 500
) -> list[DriftKey]:
    """Return the keys that may be viewed, those that are not as set first, then by host."""
    query = select(tables.drift_key)
    condition = view_conditions.runs_condition(tx)
    if condition.sql:
        query = query.join(tables.run, tables.run.c.id == _row.run).where(condition.clause())
    if host:
        query = query.where(_row.host == host)
    if state is not None:
        query = query.where(_row.state == state.value)
    order = (_row.state == DriftState.AS_SET.value, _row.host, _row.name)
    return [_build_key(row) for row in tx.sql.execute(query.order_by(*order).limit(most))]


def list_keys_of_run(tx: Transaction, run: int) -> list[DriftKey]:
    query = select(tables.drift_key).where(_row.run == run)
    return [_build_key(row) for row in tx.sql.execute(query)]


def count_by_state(tx: Transaction) -> dict[DriftState, int]:
    """Return how many keys are in each state."""
    query = select(_row.state, func.count()).group_by(_row.state)
    counts = {DriftState(state): number for state, number in tx.sql.execute(query)}
    return {state: counts.get(state, 0) for state in DriftState}


def list_due_keys(
    tx: Transaction, *, requested: bool, other_hosts: Collection[str], most: int
) -> list[DriftKey]:
    """Return the keys to read now, except those of some hosts, the longest overdue first.

    requested: only those that a person asked for.
    """
    query = select(tables.drift_key).where(_row.next_at <= tx.now)
    if requested:
        query = query.where(_row.requested_at.is_not(None))
    if other_hosts:
        query = query.where(_row.host.not_in(other_hosts))
    rows = tx.sql.execute(query.order_by(_row.next_at, _row.host).limit(most))
    return [_build_key(row) for row in rows]


def claim_reading(tx: Transaction, key: DriftKey, *, next_at: int) -> DriftKey | None:
    """Claim the next reading until *next_at*; None if another process has claimed it."""
    is_unclaimed = _row.id == key.id, _row.next_at == key.next_at
    claimed = tx.sql.execute(update(tables.drift_key).where(*is_unclaimed).values(next_at=next_at))
    return replace(key, next_at=next_at) if claimed.rowcount == 1 else None


def request_readings(tx: Transaction, host: str, *, read_before: int) -> int:
    """Have the keys of a host read now that were not read since a time.

    Returns how many keys of the host are to be read, with those that were requested already.
    """
    is_requested = _row.host == host, _row.requested_at.is_not(None)
    is_old = _row.host == host, _row.read_at < read_before, _row.requested_at.is_(None)
    tx.sql.execute(
        update(tables.drift_key).where(*is_old).values(next_at=tx.now, requested_at=tx.now)
    )
    return tx.sql.execute(select(func.count()).where(*is_requested)).scalar_one()


def store_key(tx: Transaction, key: DriftKey) -> None:
    """Store what a reading or an answer has changed."""
    expectation = key.expectation
    values = {
        name: getattr(key, name)
        for name in (
            *("since_at", "good_at", "read_at", "next_at", "requested_at"),
            *("digest", "adopted"),
        )
    }
    tx.sql.execute(
        update(tables.drift_key)
        .where(_row.id == key.id)
        .values(
            **values,
            state=key.state.value,
            value=tx.redactor.redact_for_storage(key.value),
            set_value=tx.redactor.redact_for_storage(key.set_value),
            candidates=_encode_candidates(tx, key.candidates),
            announced_at=key.announced_at,
            expected_until=expectation.until if expectation else None,
            expected_range=format_range(expectation),
        )
    )


def format_range(expectation: Expectation | None) -> str:
    """Return the range as people type it: `1000..2000`; "" without one."""
    if expectation is None or expectation.lowest is None or expectation.highest is None:
        return ""
    return f"{expectation.lowest:.15g}..{expectation.highest:.15g}"


def get_last_announcement(tx: Transaction, host: str) -> int | None:
    """Return when the last message to chat about a host was requested."""
    query = select(func.max(_row.announced_at)).where(_row.host == host)
    return tx.sql.execute(query).scalar_one()


def _read_one(tx: Transaction, query: Select[Any], number: int) -> DriftKey:
    row = tx.sql.execute(query).one_or_none()
    if row is None or not view_conditions.list_viewable(tx, [row.run]):
        raise NoSuchKeyError(number)
    return _build_key(row)


def _build_key(row: Row[Any]) -> DriftKey:
    typed = row.expected_range
    lowest, highest = parse_range(typed) if typed else (None, None)
    expectation = Expectation(row.expected_until or 0, lowest, highest)
    return DriftKey(
        id=row.id,
        host=row.host,
        name=row.name,
        run=row.run,
        state=DriftState(row.state),
        since_at=row.since_at,
        good_at=row.good_at,
        read_at=row.read_at,
        next_at=row.next_at,
        requested_at=row.requested_at,
        digest=row.digest,
        value=row.value,
        set_value=row.set_value,
        adopted=row.adopted,
        candidates=[Candidate(**one) for one in json.loads(row.candidates)],
        announced_at=row.announced_at,
        expectation=None if row.expected_until is None else expectation,
    )


def _encode_candidates(tx: Transaction, candidates: Sequence[Candidate]) -> str:
    cleaned = [
        replace(one, description=tx.redactor.redact_for_storage(one.description))
        for one in candidates
    ]
    return json.dumps([asdict(one) for one in cleaned])
