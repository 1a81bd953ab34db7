"""Looking: what is asked for, from the hosts, and from the change log where that knows it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TypeVar, cast

from bot.db import runs, search
from bot.db.search import RunFilter
from bot.model.run import Run, State
from bot.model.view_rights import Sight
from bot.workflow.context import WorkflowContext
from connectors.command import Query, QueryRunner
from connectors.history import HostEvent, KeyturnHistory, KeyturnHistoryQuery, RunSpan
from runbooks import EarlierReport
from runbooks._earlier_report import EarlierReportQuery

T = TypeVar("T")

_DID_SOMETHING = frozenset(
    {State.RUNNING, State.SUCCEEDED, State.FAILED, State.UNKNOWN, State.STOPPED}
)
_MOST = 500
# A check that was asked so often since with other values was not asked lately with these.
_LATELY = 50
_SECOND = 1_000_000
# Runs that began so long before the window may reach into it.
_BEFORE = 24 * 60 * 60 * _SECOND
# How far a host's log and the database may be apart about one moment.
_SLACK = 5 * _SECOND


def asking(parts: WorkflowContext, *, person: str = "") -> QueryRunner:
    """Return what puts a check's questions to whoever knows the answer.

    person: who requested the check, and is answered from runs that they may view; "" for the
    service itself.
    """

    def ask(host: str, query: Query[T], /) -> T:
        if isinstance(query, KeyturnHistoryQuery):
            return cast("T", _ours(parts, host, query, person))
        if isinstance(query, EarlierReportQuery):
            return cast("T", _last_time(parts, host, query, person))
        return parts.fleet.run_query(host, query)

    return ask


def _sight(parts: WorkflowContext, person: str) -> Sight | None:
    return parts.policies.current().sight(person) if person else None


def _ours(
    parts: WorkflowContext, host: str, query: KeyturnHistoryQuery, person: str
) -> KeyturnHistory:
    """Return what Keyturn did on a host, and when its runs may have used sudo there."""
    since = round(query.since.timestamp()) * _SECOND
    known = parts.policies.current().inventory.hosts.get(host)
    logins = {login.user for login in (known, known.reader if known else None) if login}
    with parts.database.reading(_sight(parts, person)) as tx:
        found = search.find_newest_runs(
            tx, RunFilter(host=host, since=since - _BEFORE), most=_MOST
        )
        # Of a schedule nothing is sent, and of a request for several hosts its parts are.
        alone = [run for run in found if not run.hosts and run.timing is None]
        events = [
            _event(run, runs.list_votes(tx, run.parent or run.id))
            for run in alone
            if _sent(run) and (run.started or 0) >= since
        ]
        spans = [span for run in alone for span in _spans(run, tx.now)]
        now = _moment(tx.now)
    # What root does with sudo is done by people.
    return KeyturnHistory(tuple(events), frozenset(logins - {"root"}), tuple(spans), now)


def _spans(run: Run, now: int) -> Iterator[RunSpan]:
    """Yield when a run was planned, and when it was carried out."""
    ended = run.ended if run.ended is not None else now
    if run.kind == "change":
        yield _span(run, run.asked, run.shown or run.started or ended)
    if run.kind != "change" or run.started is not None:
        yield _span(run, run.started or run.asked, ended)


def _span(run: Run, begins: int, ends: int) -> RunSpan:
    what = f"run {run.id}, {run.state}: {run.title}"
    return RunSpan(_moment(begins - _SLACK), _moment(ends + _SLACK), run.id, run.asked_by, what)


def _last_time(
    parts: WorkflowContext, host: str, query: EarlierReportQuery, person: str
) -> EarlierReport | None:
    wanted = RunFilter(host=host, words=query.words, states=frozenset({State.SUCCEEDED}))
    with parts.database.reading(_sight(parts, person)) as tx:
        for run in search.find_newest_runs(tx, wanted, most=_LATELY):
            same = all(run.fields.get(name) == value for name, value in query.fields.items())
            report = runs.get_run(tx, run.id).report if same else None
            if report is not None and run.ended is not None:
                return EarlierReport(datetime.fromtimestamp(run.ended / _SECOND, UTC), report)
    return None


def _sent(run: Run) -> bool:
    return run.kind == "change" and run.started is not None and run.state in _DID_SOMETHING


def _event(run: Run, votes: list[runs.Vote]) -> HostEvent:
    at = _moment(run.started or run.asked)
    keys = ", ".join(vote.person for vote in votes if vote.yes)
    approved = f", approved by {keys}" if keys else ""
    return HostEvent(
        at, "keyturn", run.asked_by, f"run {run.id}, {run.state}: {run.title}{approved}", run.id
    )


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / _SECOND, UTC)
