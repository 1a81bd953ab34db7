"""Figures: how much of what there is, counted in the database without looking at what is over."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from bot.run import ENDED, State
from bot.store import changelog, tables
from bot.store.database import Transaction

# What is being worked on and has given no sign for so long has stalled.
STALLED_SECONDS = 15 * 60
_SECOND = 1_000_000
_OPEN = [state.value for state in State if state not in ENDED]
_BUSY = [state.value for state in (State.ASKED, State.STARTING, State.RUNNING)]
_QUEUED = [State.ASKED.value, State.READY.value]
_MOST_ENTRIES = 2000


@dataclass(frozen=True)
class Standing:
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
class Happening:
    """An entry of the log that is counted. waited, took: seconds, where it ends a run.

    part: of a request for several hosts.
    """

    kind: str
    words: str
    part: bool
    waited: float | None
    took: float | None


def standing(tx: Transaction) -> Standing:
    run = tables.run.c
    rows = tx.sql.execute(
        select(run.state, run.words, func.count())
        .where(run.state.in_(_OPEN), run.place != tables.PART)
        .group_by(run.state, run.words)
    )
    opened = [(row[0], row[1], row[2]) for row in rows]
    oldest = tx.sql.execute(
        select(func.min(run.shown)).where(
            run.state == State.WAITING.value, run.place != tables.PART
        )
    ).scalar()
    queued = select(func.count()).where(run.state.in_(_QUEUED), run.place != tables.WHOLE)
    news = tables.news.c
    late = select(func.count()).where(news.revision > news.told)
    return Standing(
        open_runs=opened,
        waiting_seconds=(tx.now - oldest) / _SECOND if oldest is not None else 0.0,
        queued=tx.sql.execute(queued).scalar_one(),
        stalled=_stalled(tx),
        news=tx.sql.execute(late).scalar_one(),
        failed_news=tx.sql.execute(late.where(news.tries > 0)).scalar_one(),
        locks=tx.sql.execute(select(func.count()).select_from(tables.target_lock)).scalar_one(),
        log_entries=changelog.head(tx)[0],
    )


def _stalled(tx: Transaction) -> int:
    """Count what is being worked on and of which the log has not told for a while."""
    run, entry = tables.run.c, tables.entry.c
    told = select(func.max(entry.at)).where(entry.run == run.id)
    last = told.correlate(tables.run).scalar_subquery()
    horizon = tx.now - STALLED_SECONDS * _SECOND
    query = select(func.count()).where(
        run.state.in_(_BUSY), run.place != tables.WHOLE, run.asked < horizon, last < horizon
    )
    return tx.sql.execute(query).scalar_one()


def happenings(
    tx: Transaction, kinds: Sequence[str], *, after: int
) -> tuple[list[Happening], int]:
    """Return what the log tells of these kinds behind an entry, and how far that goes."""
    entry, run = tables.entry.c, tables.run.c
    until = min(changelog.head(tx)[0], after + _MOST_ENTRIES)
    query = (
        select(entry.kind, run.words, run.place, run.shown, run.started, run.ended)
        .select_from(tables.entry.join(tables.run, entry.run == run.id))
        .where(entry.seq > after, entry.seq <= until, entry.kind.in_(kinds))
        .order_by(entry.seq)
    )
    found = [
        Happening(
            row.kind,
            row.words,
            row.place == tables.PART,
            waited=_seconds(row.shown, row.started),
            took=_seconds(row.started, row.ended),
        )
        for row in tx.sql.execute(query)
    ]
    return found, until


def _seconds(begin: int | None, end: int | None) -> float | None:
    return None if begin is None or end is None else max(end - begin, 0) / _SECOND


def unknown(tx: Transaction) -> int:
    """Count the runs that wait for somebody to say how they ended; of several hosts, each."""
    run = tables.run.c
    query = select(func.count()).where(run.state == State.UNKNOWN.value, run.place != tables.WHOLE)
    return tx.sql.execute(query).scalar_one()
