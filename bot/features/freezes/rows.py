"""Rows of freezes that people ordered."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.model.text import join_names
from bot.model.times import to_datetime
from bot.policy import Policy
from bot.policy.freezes import FreezeOrder, OrderedFreeze
from connectors.errors import DomainError

_row = tables.ordered_freeze.c
_MAX_NAME_LENGTH = 100


@dataclass(frozen=True)
class FreezeRow:
    """A freeze that a person ordered. Times are microseconds since 1970, UTC."""

    id: int
    hosts: Sequence[str]
    """Names, patterns and tags; empty for all hosts of the areas."""
    areas: Sequence[str]
    """The names of areas, of all hosts that it meant when it was ordered."""
    person: str
    reason: str
    begins_at: int
    ends_at: int

    @property
    def what(self) -> str:
        """What it holds, as it was typed: `web*, db1`."""
        return join_names(self.hosts or self.areas)

    def build_freeze(self, policy: Policy) -> OrderedFreeze | None:
        """Return it as a freeze of the policy; None if all of its areas are gone."""
        known = [name for name in self.areas if name in policy.organisation.areas]
        name = f"{policy.get_person_name(self.person)}: {self.reason}"
        if not known:
            return None
        return OrderedFreeze.model_validate(
            {
                "name": name[:_MAX_NAME_LENGTH],
                "areas": known,
                "hosts": self.hosts,
                "from": _to_naive_utc(self.begins_at),
                "until": _to_naive_utc(self.ends_at),
                "order": FreezeOrder(self.id, self.person, self.reason),
            }
        )


class NoSuchFreezeError(DomainError):
    """No ordered freeze has this number, or it has ended."""

    code, status = "not-found", 404

    def __init__(self, number: int) -> None:
        super().__init__(
            f"no freeze {number} that a person ordered is active: `keyturn freeze list` lists them"
        )


def add_freeze(
    tx: Transaction,
    *,
    hosts: Sequence[str],
    areas: Sequence[str],
    person: str,
    reason: str,
    ends_at: int,
) -> FreezeRow:
    reason = tx.redactor.redact_for_storage(reason)
    values = {
        "hosts": ",".join(hosts),
        "areas": ",".join(areas),
        "person": person,
        "reason": reason,
        "begins_at": tx.now,
        "ends_at": ends_at,
    }
    insert = tables.ordered_freeze.insert().returning(_row.id)
    number = tx.sql.execute(insert, values).scalar_one()
    return FreezeRow(number, hosts, areas, person, reason, tx.now, ends_at)


def list_active(tx: Transaction, *, begun_by: int | None = None) -> list[FreezeRow]:
    """Return the freezes that hold now, the oldest first. begun_by: only those from before."""
    query = select(tables.ordered_freeze).where(_row.ends_at > tx.now, _row.ended_at.is_(None))
    if begun_by is not None:
        query = query.where(_row.begins_at <= begun_by)
    return [
        FreezeRow(
            row.id,
            row.hosts.split(",") if row.hosts else (),
            row.areas.split(","),
            row.person,
            row.reason,
            row.begins_at,
            row.ends_at,
        )
        for row in tx.sql.execute(query.order_by(_row.id))
    ]


def get_active(tx: Transaction, number: int) -> FreezeRow:
    """Return one that holds now. Raises NoSuchFreezeError."""
    found = next((one for one in list_active(tx) if one.id == number), None)
    if found is None:
        raise NoSuchFreezeError(number)
    return found


def end_freeze(tx: Transaction, number: int) -> bool:
    """End a freeze; False if it has ended."""
    is_active = _row.id == number, _row.ended_at.is_(None), _row.ends_at > tx.now
    ended = tx.sql.execute(update(tables.ordered_freeze).where(*is_active).values(ended_at=tx.now))
    return ended.rowcount == 1


def _to_naive_utc(at: int) -> datetime:
    return to_datetime(at).replace(tzinfo=None)
