"""Contacts: how each host was met last, by runs and checks; nothing is asked for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import insert, select, update

from bot.store import lookups
from bot.store.database import Transaction

_CONTACT = lookups.contact.c
_LONGEST = 500


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


def keep(
    tx: Transaction,
    host: str,
    *,
    met: int,
    answered: int | None,
    kind: str = "",
    trouble: str = "",
) -> None:
    """Note how a host was met; what is known of a later time stays. answered: None for not now."""
    known = of(tx, host)
    if known is None:
        row = {"met": met, "answered": answered, "since": met, "kind": kind}
        tx.sql.execute(insert(lookups.contact).values(host=host, trouble=_cut(tx, trouble), **row))
        return
    latest = max((one for one in (answered, known.answered) if one is not None), default=None)
    changes: dict[str, object] = {"answered": latest}
    if met >= known.met:
        since = known.since if kind == known.kind else met
        changes |= {"met": met, "kind": kind, "since": since, "trouble": _cut(tx, trouble)}
    tx.sql.execute(update(lookups.contact).where(_CONTACT.host == host).values(changes))


def of(tx: Transaction, host: str) -> Contact | None:
    row = tx.sql.execute(select(lookups.contact).where(_CONTACT.host == host)).one_or_none()
    return _contact(row) if row else None


def every(tx: Transaction) -> Mapping[str, Contact]:
    """Return all of them, by host."""
    return {row.host: _contact(row) for row in tx.sql.execute(select(lookups.contact))}


def _contact(row: Sequence[object]) -> Contact:
    host, met, answered, since, kind, trouble = row
    return Contact(host, met, answered, since, kind, trouble)  # pyright: ignore[reportArgumentType] - the columns' types


def _cut(tx: Transaction, trouble: str) -> str:
    # PostgreSQL's text holds no NUL, and hosts may say anything.
    return tx.redactor.text(trouble).replace("\0", "\\x00")[:_LONGEST]
