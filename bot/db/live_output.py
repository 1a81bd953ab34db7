"""Live output: the newest lines that a command prints on a host while it runs.

Not part of the change log. The lines are deleted as soon as the step has its outcome; `output`
keeps its output for good. Only if the outcome is unknown do they stay, as the last known output.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import bindparam, delete, or_, select

from bot.db import tables
from bot.db.database import Transaction
from bot.model.redaction import Redactor

_COLUMN = tables.live_output.c
_DELETE = delete(tables.live_output).where(
    _COLUMN.run == bindparam("of"), _COLUMN.step_number == bindparam("which")
)


# How many lines and characters of one step are kept.
MOST_LINES = 100
MOST_CHARACTERS = 8 * 1024


@dataclass(frozen=True)
class LiveOutput:
    """The live output of a step."""

    run: int
    host: str
    n: int
    """The number of the step."""
    at: int
    """When it was received, in microseconds since 1970, UTC."""
    total: int
    """How many lines there are in all."""
    newest: Sequence[str]
    """The newest lines."""


@dataclass(frozen=True)
class NewestLines:
    """The newest lines of a step, redacted and capped."""

    run: int
    step_number: int
    total_lines: int
    """How many lines there are in all."""
    text: str


def prepare_lines(
    redactor: Redactor, run: int, n: int, *, total: int, lines: Sequence[str]
) -> NewestLines:
    """Redact the lines and keep the newest.

    lines: pass twice as many as are kept, so that a secret that begins in the others is found.
    """
    redacted = redactor.redact_for_storage("\n".join(lines))
    kept = redacted[-MOST_CHARACTERS:].split("\n")[-MOST_LINES:]
    return NewestLines(run, n, total, "\n".join(kept))


def store_lines(tx: Transaction, lines: Sequence[NewestLines]) -> None:
    """Replace the stored lines of these steps."""
    if not lines:
        return
    statement = tx.insert_into(tables.live_output)
    values = {name: statement.excluded[name] for name in ("received_at", "total_lines", "text")}
    tx.sql.execute(
        statement.on_conflict_do_update(index_elements=["run", "step_number"], set_=values),
        [asdict(one) | {"received_at": tx.now} for one in lines],
    )


def get_live_output(tx: Transaction, number: int) -> list[LiveOutput]:
    """Return the live output of a run and its child runs."""
    runs = tables.run.c
    query = select(tables.live_output, runs.host).join(tables.run, runs.id == _COLUMN.run)
    query = query.where(or_(runs.id == number, runs.parent == number))
    return [
        LiveOutput(
            row.run,
            row.host,
            row.step_number,
            row.received_at,
            row.total_lines,
            row.text.split("\n"),
        )
        for row in tx.sql.execute(query.order_by(_COLUMN.run, _COLUMN.step_number))
    ]


def delete_lines(tx: Transaction, run: int, n: int | None = None) -> None:
    """Delete the lines of one step, or of all steps of a run."""
    if n is None:
        tx.sql.execute(delete(tables.live_output).where(_COLUMN.run == run))
    else:
        tx.sql.execute(_DELETE, {"of": run, "which": n})
