"""Glances: how far a run is, read often and cheaply while somebody watches it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, func, select

from bot.db import live_output, tables, view_conditions
from bot.db.database import Transaction
from bot.db.live_output import LiveOutput
from bot.db.runs import NoSuchRun
from bot.model.run import ENDED_STATES, State, get_run_status

_RUN = tables.run.c
_COLUMNS = [
    *(_RUN.id, _RUN.version, _RUN.host, _RUN.state),
    *(_RUN.started_at, _RUN.ended_at, _RUN.summary, _RUN.needs_attention),
]


@dataclass(frozen=True)
class RunProgressPart:
    """One run as far as watching it takes: the whole, or the part for one host."""

    id: int
    version: int
    host: str
    state: State
    started_at: int | None
    ended_at: int | None
    summary: str
    needs_attention: bool = False

    @property
    def status(self) -> str:
        return get_run_status(self.state, needs_attention=self.needs_attention)

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED_STATES


@dataclass(frozen=True)
class RunProgress:
    """head: the newest entry of the change log about it. now: the database's time."""

    whole: RunProgressPart
    parts: Sequence[RunProgressPart]
    head: int
    heard: Sequence[LiveOutput]
    now: int

    @property
    def stamp(self) -> str:
        """What differs whenever the whole has moved; not when a part did, or a host said much."""
        return f"{self.whole.version}-{self.head}"


def get_run_progress(tx: Transaction, number: int) -> RunProgress:
    """Raises NoSuchRun."""
    query = select(*_COLUMNS)
    row = tx.sql.execute(query.where(_RUN.id == number)).one_or_none()
    if row is None or not view_conditions.list_viewable(tx, [number]):
        raise NoSuchRun(f"there is no run {number}")
    parts = tx.sql.execute(query.where(_RUN.parent == number).order_by(_RUN.id))
    entry = tables.entry.c
    head = tx.sql.execute(select(func.max(entry.seq)).where(entry.run == number)).scalar()
    return RunProgress(
        whole=_part(row),
        parts=[_part(each) for each in parts],
        head=head or 0,
        heard=live_output.get_live_output(tx, number),
        now=tx.now,
    )


def _part(row: Row[Any]) -> RunProgressPart:
    return RunProgressPart(
        *(row.id, row.version, row.host, State(row.state)),
        *(row.started_at, row.ended_at, row.summary, row.needs_attention),
    )
