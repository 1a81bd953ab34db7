"""Counts and waiting times for metrics and reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import bindparam, func, select

from bot.db import search, tables, view_conditions
from bot.db.database import Transaction
from bot.model.run import ENDED_STATES, State

_RUN, _VOTE = tables.run.c, tables.decision.c
# Of so many requests, the newest, the usual wait is told.
_ENOUGH_TO_TELL = 50
_USUAL = (
    select((_RUN.started_at - _RUN.requested_at).label("wait"))
    .where(
        _RUN.runbook == bindparam("what"),
        _RUN.required_approvals > 0,
        _RUN.started_at.is_not(None),
    )
    .order_by(_RUN.id.desc())
    .limit(_ENOUGH_TO_TELL)
)
_WAITS = _USUAL


@dataclass(frozen=True)
class Wait:
    """One request that took approvals. asked: microseconds. length: from when it was shown until
    its last approval, or its end without one; None while it waits. approved: it got what it took.
    """

    run: int
    runbook: str
    area: str
    requested_by: str
    requested_at: int
    state: State
    length: int | None
    approved: bool


def get_horizon(tx: Transaction, moment: int, *, most: int) -> int:
    """Return the moment, or a later one since which no more than so many runs were asked for."""
    query = select(_RUN.requested_at).where(
        _RUN.requested_at >= moment, view_conditions.runs_condition(tx).clause()
    )
    query = query.order_by(_RUN.requested_at.desc())
    beyond = tx.sql.execute(query.offset(most).limit(1)).scalar()
    return moment if beyond is None else beyond + 1


def list_waits_since(tx: Transaction, moment: int) -> Iterator[Wait]:
    """Yield every request since then that waited for approvals; one for several hosts is one."""
    # By number: all runs, and all votes, that ever were need not be walked for it.
    first = search.first_number_since(tx, moment) or 0
    keys = (
        select(_VOTE.run, func.count().label("n"), func.max(_VOTE.decided_at).label("at"))
        .join(tables.run, _RUN.id == _VOTE.run)
        .where(_VOTE.run >= first, _RUN.requested_at >= moment, _VOTE.approves)
        .group_by(_VOTE.run)
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
            keys.c.n,
            keys.c.at,
        )
        .outerjoin(keys, keys.c.run == _RUN.id)
        .where(
            _RUN.id >= first,
            _RUN.requested_at >= moment,
            _RUN.fan_out_role != tables.CHILD,
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
    """Return the median wait from asking to starting, in microseconds, of the newest runs of a
    runbook that took an approval; None if there are none yet."""
    if view_conditions.can_view_everything(tx):
        lengths = [row.wait for row in tx.sql.execute(_WAITS, {"what": words}).all()]
    else:
        # Of the runs that whoever is told may view.
        seen = _USUAL.where(view_conditions.runs_condition(tx).clause())
        lengths = [*tx.sql.execute(seen, {"what": words}).scalars()]
    return round(median(lengths)) if lengths else None


# What is being worked on and has given no sign for so long has stalled.
STALLED_SECONDS = 15 * 60
_SECOND = 1_000_000
_OPEN = [state.value for state in State if state not in ENDED_STATES]
_BUSY = [state.value for state in (State.PLANNING, State.STARTING, State.RUNNING)]
_QUEUED = [State.PLANNING.value, State.QUEUED.value]
_MOST_ENTRIES = 2000


@dataclass(frozen=True)
class OpenWork:
    """What stands open. open_runs: how many by state and runbook; of several hosts, the whole.

    waiting_seconds: how long the oldest request waits for its approvals. queued: runs that wait
    for their turn. news: how many runs chat has still to be told of; failed_news: of these, how
    many were tried. locks: hosts that are held. log_entries: the number of the newest.
    """

    open_runs: Sequence[tuple[str, str, int]]
    waiting_seconds: float
    queued: int
    stalled: int
    news: int
    failed_news: int
    locks: int
    log_entries: int


@dataclass(frozen=True)
class CountedEntry:
    """An entry of the log that is counted. waited, took: seconds, where it ends a run.

    part: of a request for several hosts.
    """

    kind: str
    runbook: str
    part: bool
    waited: float | None
    took: float | None


def count_open_work(tx: Transaction) -> OpenWork:
    run = tables.run.c
    rows = tx.sql.execute(
        select(run.state, run.runbook, func.count())
        .where(run.state.in_(_OPEN), run.fan_out_role != tables.CHILD)
        .group_by(run.state, run.runbook)
    )
    opened = [(row[0], row[1], row[2]) for row in rows]
    oldest = tx.sql.execute(
        select(func.min(run.pending_since)).where(
            run.state == State.PENDING.value, run.fan_out_role != tables.CHILD
        )
    ).scalar()
    queued = select(func.count()).where(run.state.in_(_QUEUED), run.fan_out_role != tables.PARENT)
    news = tables.outbox.c
    late = select(func.count()).where(news.revision > news.delivered_revision)
    return OpenWork(
        open_runs=opened,
        waiting_seconds=(tx.now - oldest) / _SECOND if oldest is not None else 0.0,
        queued=tx.sql.execute(queued).scalar_one(),
        stalled=_stalled(tx),
        news=tx.sql.execute(late).scalar_one(),
        failed_news=tx.sql.execute(late.where(news.attempts > 0)).scalar_one(),
        locks=tx.sql.execute(select(func.count()).select_from(tables.host_lock)).scalar_one(),
        log_entries=_last_entry(tx),
    )


def _stalled(tx: Transaction) -> int:
    """Count what is being worked on and of which the log has not told for a while."""
    run, entry = tables.run.c, tables.entry.c
    told = select(func.max(entry.at)).where(entry.run == run.id)
    last = told.correlate(tables.run).scalar_subquery()
    horizon = tx.now - STALLED_SECONDS * _SECOND
    query = select(func.count()).where(
        run.state.in_(_BUSY),
        run.fan_out_role != tables.PARENT,
        run.requested_at < horizon,
        last < horizon,
    )
    return tx.sql.execute(query).scalar_one()


def _last_entry(tx: Transaction) -> int:
    return tx.sql.execute(select(func.max(tables.entry.c.seq))).scalar() or 0


def list_counted_entries(
    tx: Transaction, kinds: Sequence[str], *, after: int
) -> tuple[list[CountedEntry], int]:
    """Return what the log tells of these kinds behind an entry, and how far that goes."""
    entry, run = tables.entry.c, tables.run.c
    until = min(_last_entry(tx), after + _MOST_ENTRIES)
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
            waited=_seconds(row.pending_since, row.started_at),
            took=_seconds(row.started_at, row.ended_at),
        )
        for row in tx.sql.execute(query)
    ]
    return found, until


def _seconds(begin: int | None, end: int | None) -> float | None:
    return None if begin is None or end is None else max(end - begin, 0) / _SECOND


def count_unknown_outcomes(tx: Transaction) -> int:
    """Count the runs that wait for somebody to say how they ended; of several hosts, each."""
    run = tables.run.c
    query = select(func.count()).where(
        run.state == State.UNKNOWN.value, run.fan_out_role != tables.PARENT
    )
    return tx.sql.execute(query).scalar_one()
