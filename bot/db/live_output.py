"""Heard: the newest lines of what a host says while its command still runs, for whoever watches.

No part of the change log: as soon as the step has its outcome, these lines are gone, and what is
kept for good is in `output`. Only where nobody saw a step's end do they stay, as the last that was
heard of it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import bindparam, delete, or_, select

from bot.db import tables
from bot.db.database import Transaction
from bot.model.redaction import Redactor

_HEARD = tables.heard.c
_FORGET = delete(tables.heard).where(_HEARD.run == bindparam("of"), _HEARD.n == bindparam("which"))


# How many lines, and how many characters of them, are kept of one step.
MOST_LINES = 100
MOST_CHARACTERS = 8 * 1024
# How much later than another, with an earlier time, something heard may have been committed.
_SLACK = 5_000_000


@dataclass(frozen=True)
class LiveOutput:
    """What was heard of step n of a run. newest: lines; total: how many there were in all."""

    run: int
    host: str
    n: int
    at: int
    total: int
    newest: Sequence[str]


@dataclass(frozen=True)
class NewestLines:
    """The newest lines of a step, without secrets. lines: how many there were in all."""

    run: int
    n: int
    lines: int
    text: str


def newest_lines(
    redactor: Redactor, run: int, n: int, *, total: int, lines: Sequence[str]
) -> NewestLines:
    """Return what is kept of these lines: not too much, and without secrets.

    lines: best twice as many as are shown: a secret that begins in the others is still known.
    """
    said = redactor.redact_text("\n".join(lines)).replace("\0", "\\x00")
    kept = said[-MOST_CHARACTERS:].split("\n")[-MOST_LINES:]
    return NewestLines(run, n, total, "\n".join(kept))


def store_lines(tx: Transaction, said: Sequence[NewestLines]) -> None:
    """Keep the newest lines of these steps in the place of those kept before."""
    if not said:
        return
    store = tx.insert_into(tables.heard)
    told = {name: store.excluded[name] for name in ("at", "lines", "text")}
    tx.sql.execute(
        store.on_conflict_do_update(index_elements=["run", "n"], set_=told),
        [asdict(one) | {"at": tx.now} for one in said],
    )


def get_live_output(tx: Transaction, number: int, *, since: int = 0) -> list[LiveOutput]:
    """Return what was heard for a run, or for the parts of one, and about since when.

    since: microseconds; what is a little older may come again.
    """
    runs = tables.run.c
    query = select(tables.heard, runs.host).join(tables.run, runs.id == _HEARD.run)
    query = query.where(or_(runs.id == number, runs.parent == number), _HEARD.at > since - _SLACK)
    return [
        LiveOutput(row.run, row.host, row.n, row.at, row.lines, row.text.split("\n"))
        for row in tx.sql.execute(query.order_by(_HEARD.run, _HEARD.n))
    ]


def delete_lines(tx: Transaction, run: int, n: int | None = None) -> None:
    """Forget a step of a run, or all of it."""
    if n is None:
        tx.sql.execute(delete(tables.heard).where(_HEARD.run == run))
    else:
        tx.sql.execute(_FORGET, {"of": run, "which": n})
