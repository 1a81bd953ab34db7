"""What the database knows of the first steps of an installation."""

from dataclasses import dataclass

from sqlalchemy import exists, select

from bot.db import tables
from bot.db.database import Transaction
from bot.model.run import State

_run, _decision = tables.run.c, tables.decision.c
_succeeded = _run.state == State.SUCCEEDED.value
_QUERY = select(
    exists().where(
        _decision.approves, _run.id == _decision.run, _run.kind == "change", _succeeded
    ),
    exists().where(_run.kind == "check", _succeeded),
)


@dataclass(frozen=True)
class FirstRuns:
    """Which runs there have been, also those that the reader may not view."""

    has_changed: bool
    """An approved change has succeeded."""
    has_checked: bool
    """A check has succeeded."""


def read_first_runs(tx: Transaction) -> FirstRuns:
    changed, checked = tx.sql.execute(_QUERY).one()
    return FirstRuns(has_changed=bool(changed), has_checked=bool(checked))
