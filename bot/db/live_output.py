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

_HEARD = tables.live_output.c
_FORGET = delete(tables.live_output).where(
    _HEARD.run == bindparam("of"), _HEARD.step_number == bindparam("which")
)


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
    step_number: int
    total_lines: int
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
    store = tx.insert_into(tables.live_output)
    told = {name: store.excluded[name] for name in ("received_at", "total_lines", "text")}
    tx.sql.execute(
        store.on_conflict_do_update(index_elements=["run", "step_number"], set_=told),
        [asdict(one) | {"received_at": tx.now} for one in said],
    )


def get_live_output(tx: Transaction, number: int, *, since: int = 0) -> list[LiveOutput]:
    """Return what was heard for a run, or for the parts of one, and about since when.

    since: microseconds; what is a little older may come again.
    """
    runs = tables.run.c
    query = select(tables.live_output, runs.host).join(tables.run, runs.id == _HEARD.run)
    query = query.where(
        or_(runs.id == number, runs.parent == number), _HEARD.received_at > since - _SLACK
    )
    return [
        LiveOutput(
            row.run,
            row.host,
            row.step_number,
            row.received_at,
            row.total_lines,
            row.text.split("\n"),
        )
        for row in tx.sql.execute(query.order_by(_HEARD.run, _HEARD.step_number))
    ]


def delete_lines(tx: Transaction, run: int, n: int | None = None) -> None:
    """Forget a step of a run, or all of it."""
    if n is None:
        tx.sql.execute(delete(tables.live_output).where(_HEARD.run == run))
    else:
        tx.sql.execute(_FORGET, {"of": run, "which": n})
