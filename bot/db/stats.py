"""Counts and waiting times for metrics and reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import bindparam, func, select

from bot.db import search, tables, view_conditions
from bot.db.database import Transaction
from bot.model.run import ENDED_STATES, State
from bot.model.times import SECOND

_RUN, _DECISION = tables.run.c, tables.decision.c
# How many of the newest requests the usual wait is computed from.
_SAMPLE = 50
_USUAL = (
    select((_RUN.started_at - _RUN.requested_at).label("wait"))
    .where(
        _RUN.runbook == bindparam("what"),
        _RUN.required_approvals > 0,
        _RUN.started_at.is_not(None),
    )
    .order_by(_RUN.id.desc())
    .limit(_SAMPLE)
)


@dataclass(frozen=True)
class Wait:
    """How long one request waited for approvals."""

    run: int
    runbook: str
    area: str
    requested_by: str
    requested_at: int
    """Microseconds since 1970, UTC."""
    state: State
    length: int | None
    """From the plan to the last approval, or to the end without it, in microseconds; None while it
    is pending."""
    approved: bool
    """Whether it got all approvals."""


def get_horizon(tx: Transaction, since: int, *, most: int) -> int:
    """Return *since*, or a later time since which at most *most* runs were requested."""
    query = select(_RUN.requested_at).where(
        _RUN.requested_at >= since, view_conditions.runs_condition(tx).clause()
    )
    query = query.order_by(_RUN.requested_at.desc())
    beyond = tx.sql.execute(query.offset(most).limit(1)).scalar()
    return since if beyond is None else beyond + 1


def list_waits_since(tx: Transaction, since: int) -> Iterator[Wait]:
    """Yield every request since then that waited for approvals; one for several hosts is one."""
    # By number, so that the database does not read all runs and decisions.
    first = search.get_first_number_since(tx, since) or 0
    approvals = (
        select(_DECISION.run, func.count().label("n"), func.max(_DECISION.decided_at).label("at"))
        .join(tables.run, _RUN.id == _DECISION.run)
        .where(_DECISION.run >= first, _RUN.requested_at >= since, _DECISION.approves)
        .group_by(_DECISION.run)
        .subquery()
    )
    query = (
        select(
            _RUN.id,
            _RUN.runbook,
            _RUN.area,
            _RUN.requested_by,
            _RUN.requested_at,
            _RUN.state,
            _RUN.pending_since,
            _RUN.required_approvals,
            _RUN.ended_at,
            approvals.c.n,
            approvals.c.at,
        )
        .outerjoin(approvals, approvals.c.run == _RUN.id)
        .where(
            _RUN.id >= first,
            _RUN.requested_at >= since,
            _RUN.fan_out_role < tables.CHILD,
            _RUN.required_approvals > 0,
            _RUN.pending_since.is_not(None),
            _RUN.grant_id.is_(None),
            view_conditions.runs_condition(tx).clause(),
        )
        .order_by(_RUN.id)
    )
    for row in tx.sql.execute(query):
        approved = (row.n or 0) >= row.required_approvals
        until = row.at if approved else row.ended_at
        yield Wait(
            row.id,
            row.runbook,
            row.area,
            row.requested_by,
            row.requested_at,
            State(row.state),
            None if until is None else max(until - row.pending_since, 0),
            approved,
        )


def get_usual_wait(tx: Transaction, words: str) -> int | None:
    """Return the median time from request to start of a runbook, in microseconds; None if unknown.

    Computed from the newest runs that needed approval.
    """
    if view_conditions.can_view_everything(tx):
        lengths = [row.wait for row in tx.sql.execute(_USUAL, {"what": words}).all()]
    else:
        # Only of the runs that the reader may view.
        query = _USUAL.where(view_conditions.runs_condition(tx).clause())
        lengths = [*tx.sql.execute(query, {"what": words}).scalars()]
    return round(median(lengths)) if lengths else None


# A busy run without an entry in the log for this long counts as stalled.
STALLED_SECONDS = 15 * 60
_OPEN = [state.value for state in State if state not in ENDED_STATES]
_BUSY = [state.value for state in (State.PLANNING, State.STARTING, State.RUNNING)]
_QUEUED = [State.PLANNING.value, State.QUEUED.value]
_MOST_ENTRIES = 2000


@dataclass(frozen=True)
class OpenWork:
    """The unfinished work."""

    open_runs: Sequence[tuple[str, str, int]]
    """State, runbook and number of unfinished runs, without child runs."""
    waiting_seconds: float
    """How long the oldest pending request has waited for approvals."""
    queued: int
    """How many runs wait for their host."""
    stalled: int
    undelivered: int
    """How many runs have notifications to deliver."""
    failed_deliveries: int
    """For how many of these a delivery has failed."""
    locks: int
    """How many hosts are locked."""
    log_entries: int
    """The number of the newest entry of the change log."""


@dataclass(frozen=True)
class CountedEntry:
    """An entry of the change log for the metrics."""

    kind: str
    runbook: str
    is_child: bool
    """Whether it is about a child run."""
    waited: float | None
    """Seconds from the plan to the start of the run."""
    took: float | None
    """Seconds from the start to the end of the run."""


def count_open_work(tx: Transaction) -> OpenWork:
    """Count the unfinished work for metrics and health checks."""
    run = tables.run.c
    rows = tx.sql.execute(
        select(run.state, run.runbook, func.count())
        .where(run.state.in_(_OPEN), run.fan_out_role < tables.CHILD)
        .group_by(run.state, run.runbook)
    )
    opened = [(row[0], row[1], row[2]) for row in rows]
    oldest = tx.sql.execute(
        select(func.min(run.pending_since)).where(
            run.state == State.PENDING.value, run.fan_out_role < tables.CHILD
        )
    ).scalar()
    queued = select(func.count()).where(run.state.in_(_QUEUED), run.fan_out_role != tables.PARENT)
    outbox = tables.outbox.c
    undelivered = select(func.count()).select_from(tables.outbox)
    return OpenWork(
        open_runs=opened,
        waiting_seconds=(tx.now - oldest) / SECOND if oldest is not None else 0.0,
        queued=tx.sql.execute(queued).scalar_one(),
        stalled=_count_stalled(tx),
        undelivered=tx.sql.execute(undelivered).scalar_one(),
        failed_deliveries=tx.sql.execute(undelivered.where(outbox.attempts > 0)).scalar_one(),
        locks=tx.sql.execute(select(func.count()).select_from(tables.host_lock)).scalar_one(),
        log_entries=_get_last_entry(tx),
    )


def _count_stalled(tx: Transaction) -> int:
    """Count the busy runs without an entry in the change log for a while."""
    run, entry = tables.run.c, tables.entry.c
    newest = select(func.max(entry.at)).where(entry.run == run.id)
    last = newest.correlate(tables.run).scalar_subquery()
    horizon = tx.now - STALLED_SECONDS * SECOND
    query = select(func.count()).where(
        run.state.in_(_BUSY),
        run.fan_out_role != tables.PARENT,
        run.requested_at < horizon,
        last < horizon,
    )
    return tx.sql.execute(query).scalar_one()


def _get_last_entry(tx: Transaction) -> int:
    return tx.sql.execute(select(func.max(tables.entry.c.seq))).scalar() or 0


def list_counted_entries(
    tx: Transaction, kinds: Sequence[str], *, after: int
) -> tuple[list[CountedEntry], int]:
    """Return the entries of these kinds after an entry, and the number of the last one read."""
    entry, run = tables.entry.c, tables.run.c
    until = min(_get_last_entry(tx), after + _MOST_ENTRIES)
    query = (
        select(
            entry.kind,
            run.runbook,
            run.fan_out_role,
            run.pending_since,
            run.started_at,
            run.ended_at,
        )
        .select_from(tables.entry.join(tables.run, entry.run == run.id))
        .where(entry.seq > after, entry.seq <= until, entry.kind.in_(kinds))
        .order_by(entry.seq)
    )
    found = [
        CountedEntry(
            row.kind,
            row.runbook,
            row.fan_out_role == tables.CHILD,
            waited=_compute_seconds(row.pending_since, row.started_at),
            took=_compute_seconds(row.started_at, row.ended_at),
        )
        for row in tx.sql.execute(query)
    ]
    return found, until


def _compute_seconds(begin: int | None, end: int | None) -> float | None:
    return None if begin is None or end is None else max(end - begin, 0) / SECOND


def count_unknown_outcomes(tx: Transaction) -> int:
    """Count the runs with an unknown outcome, without parent runs."""
    run = tables.run.c
    query = select(func.count()).where(
        run.state == State.UNKNOWN.value, run.fan_out_role != tables.PARENT
    )
    return tx.sql.execute(query).scalar_one()
