"""Heard: the newest lines of what a host says while its command still runs, for whoever watches.

No part of the change log: as soon as the step has its outcome, these lines are gone, and what is
kept for good is in `output`. Only where nobody saw a step's end do they stay, as the last that was
heard of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    bindparam,
    delete,
    or_,
    select,
    update,
)

from bot.store import tables
from bot.store.database import Transaction
from bot.store.rote import Rote
from bot.store.tables import metadata

# at: when a line was heard last. lines: how many there were in all; text holds the newest.
_TABLE = Table(
    "heard",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("lines", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Index(None, "run", "at"),
)
_HEARD = _TABLE.c
_FORGET = Rote(delete(_TABLE).where(_HEARD.run == bindparam("of"), _HEARD.n == bindparam("which")))

# How many lines, and how many characters of them, are kept of one step.
MOST_LINES = 100
MOST_CHARACTERS = 8 * 1024
# How much later than another, with an earlier time, something heard may have been committed.
_SLACK = 5_000_000


@dataclass(frozen=True)
class Heard:
    """What was heard of step n of a run. newest: lines; total: how many there were in all."""

    run: int
    host: str
    n: int
    at: int
    total: int
    newest: Sequence[str]


def keep(tx: Transaction, run: int, n: int, *, total: int, newest: Sequence[str]) -> None:
    """Keep the newest lines of a step in the place of those kept before, without secrets.

    newest: best twice as many as are shown: a secret that begins in the others is still known.
    """
    said = tx.redactor.text("\n".join(newest)).replace("\0", "\\x00")
    lines = said[-MOST_CHARACTERS:].split("\n")[-MOST_LINES:]
    values = {"at": tx.now, "lines": total, "text": "\n".join(lines)}
    if not tx.insert_once(_TABLE, run=run, n=n, **values):
        tx.sql.execute(update(_TABLE).where(_HEARD.run == run, _HEARD.n == n).values(values))


def of_run(tx: Transaction, number: int, *, since: int = 0) -> list[Heard]:
    """Return what was heard for a run, or for the parts of one, and about since when.

    since: microseconds; what is a little older may come again.
    """
    runs = tables.run.c
    query = select(_TABLE, runs.host).join(tables.run, runs.id == _HEARD.run)
    query = query.where(or_(runs.id == number, runs.parent == number), _HEARD.at > since - _SLACK)
    return [
        Heard(row.run, row.host, row.n, row.at, row.lines, row.text.split("\n"))
        for row in tx.sql.execute(query.order_by(_HEARD.run, _HEARD.n))
    ]


def forget(tx: Transaction, run: int, n: int | None = None) -> None:
    """Forget a step of a run, or all of it."""
    if n is None:
        tx.sql.execute(delete(_TABLE).where(_HEARD.run == run))
    else:
        _FORGET.do(tx, of=run, which=n)
