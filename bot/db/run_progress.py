"""Read the progress of a run, often and cheaply, while it is being watched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, func, select

from bot.db import live_output, tables, view_conditions
from bot.db.database import Transaction
from bot.db.live_output import LiveOutput
from bot.db.runs import NoSuchRun
from bot.model.run import ENDED_STATES, State, get_run_status
from bot.model.waiting import Waiting, parse_waiting

_RUN = tables.run.c
_COLUMNS = [
    *(_RUN.id, _RUN.version, _RUN.host, _RUN.state),
    *(_RUN.started_at, _RUN.ended_at, _RUN.summary, _RUN.needs_attention, _RUN.kind, _RUN.waiting),
]


@dataclass(frozen=True)
class RunProgressPart:
    """What watching needs of one run: the run itself or a child run."""

    id: int
    version: int
    host: str
    state: State
    started_at: int | None
    ended_at: int | None
    summary: str
    needs_attention: bool = False
    kind: str = "change"
    waiting: Waiting | None = None

    @property
    def status(self) -> str:
        return get_run_status(self.state, needs_attention=self.needs_attention)

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED_STATES


@dataclass(frozen=True)
class RunProgress:
    """How far a run is."""

    run: RunProgressPart
    children: Sequence[RunProgressPart]
    head: int
    """The number of the newest entry of the change log about the run."""
    live_outputs: Sequence[LiveOutput]
    now: int
    """The time of the database, in microseconds since 1970, UTC."""

    @property
    def stamp(self) -> str:
        """A value that changes with the run, but not with child runs or live output."""
        return f"{self.run.version}-{self.head}"


def get_run_progress(tx: Transaction, number: int) -> RunProgress:
    """Return the progress of a run. Raises NoSuchRun."""
    query = select(*_COLUMNS)
    row = tx.sql.execute(query.where(_RUN.id == number)).one_or_none()
    if row is None or not view_conditions.list_viewable(tx, [number]):
        raise NoSuchRun(f"there is no run {number}")
    children = tx.sql.execute(query.where(_RUN.parent == number).order_by(_RUN.id))
    entry = tables.entry.c
    head = tx.sql.execute(select(func.max(entry.seq)).where(entry.run == number)).scalar()
    return RunProgress(
        run=_build_part(tx, row),
        children=[_build_part(tx, each) for each in children],
        head=head or 0,
        live_outputs=live_output.get_live_output(tx, number),
        now=tx.now,
    )


def get_stamp(tx: Transaction) -> str:
    """Return a value that changes with the entries and runs that may be viewed.

    It changes with contact to hosts only for those who may view everything.
    """
    entries = select(func.max(tables.entry.c.seq))
    visible = entries.where(view_conditions.entries_condition(tx).clause())
    parts = [tx.sql.execute(visible).scalar()]
    if view_conditions.can_view_everything(tx):
        contacts = select(func.max(tables.host_contact.c.tried_at))
        parts.append(tx.sql.execute(contacts).scalar())
    return "-".join(map(str, parts))


def get_waiting_stamp(tx: Transaction) -> str:
    """Return a value that changes with what waits for anyone, apart from policy and time."""
    states = (State.PENDING, State.COUNTER_PROPOSED, State.UNKNOWN)
    waiting = select(_RUN.id).where(_RUN.state.in_([state.value for state in states]))
    delegation = tables.delegation.c
    queries = (
        select(func.count(), func.max(_RUN.id), func.sum(_RUN.version)).where(
            _RUN.id.in_(waiting)
        ),
        select(func.max(tables.entry.c.seq)).where(tables.entry.c.run.in_(waiting)),
        select(func.max(delegation.id), func.max(delegation.revoked_at)),
    )
    return "-".join(str(value) for query in queries for value in tx.sql.execute(query).one())


def _build_part(tx: Transaction, row: Row[Any]) -> RunProgressPart:
    summary = view_conditions.show_references(tx, row.summary)
    return RunProgressPart(
        *(row.id, row.version, row.host, State(row.state)),
        *(row.started_at, row.ended_at, summary, row.needs_attention, row.kind),
        view_conditions.show_waiting(tx, parse_waiting(row.waiting)),
    )
