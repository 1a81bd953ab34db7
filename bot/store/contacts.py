"""Contacts: how each host was met last, by runs and checks; nothing is asked for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from bot.store import lookups
from bot.store.database import Transaction
from bot.store.rote import Rote

_LONGEST = 500


def _upsert(insert: postgresql.Insert | sqlite.Insert) -> postgresql.Insert | sqlite.Insert:
    names = [column.name for column in lookups.contact.columns if column.name != "host"]
    told = {name: insert.excluded[name] for name in names}
    return insert.on_conflict_do_update(index_elements=["host"], set_=told)


_EVERY = Rote(select(lookups.contact))
_KEEP = Rote(_upsert(postgresql.insert(lookups.contact)), _upsert(sqlite.insert(lookups.contact)))


@dataclass(frozen=True)
class Contact:
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


def keep(tx: Transaction, found: Sequence[Contact]) -> None:
    """Note how hosts were met, by two statements; what is known of a later time stays.

    since: of each, when it was met. answered: None for not now.
    """
    known = every(tx)
    _KEEP.do_all(tx, [vars(_later(tx, known.get(one.host), one)) for one in found])


def _later(tx: Transaction, known: Contact | None, new: Contact) -> Contact:
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


def every(tx: Transaction) -> Mapping[str, Contact]:
    """Return all of them, by host."""
    return {row.host: _contact(row) for row in _EVERY.rows(tx)}


def _contact(row: Sequence[object]) -> Contact:
    host, met, answered, since, kind, trouble = row
    return Contact(host, met, answered, since, kind, trouble)  # pyright: ignore[reportArgumentType] - the columns' types


def _cut(tx: Transaction, trouble: str) -> str:
    # PostgreSQL's text holds no NUL, and hosts may say anything.
    return tx.redactor.text(trouble).replace("\0", "\\x00")[:_LONGEST]
