"""Answer the queries of checks: from hosts, and from Keyturn's own records."""

from collections.abc import Iterator
from typing import TypeVar, cast

from bot.db import runs, search
from bot.db.search import RunFilter
from bot.model.run import Run, State
from bot.model.times import DAY, SECOND, to_datetime
from bot.model.view_rights import ViewRights
from bot.workflow.context import WorkflowContext
from connectors.command import Query, QueryRunner
from connectors.history import HostEvent, KeyturnHistory, KeyturnHistoryQuery, RunSpan
from runbooks import EarlierReport
from runbooks._earlier_report import EarlierReportQuery

T = TypeVar("T")

_STATES_WITH_EFFECT = frozenset(
    {State.RUNNING, State.SUCCEEDED, State.FAILED, State.UNKNOWN, State.STOPPED}
)
_MAX_RUNS = 500
# How many earlier checks are searched for one with the same values.
_MAX_EARLIER_RUNS = 50
# Runs that began so long before the window may reach into it.
_MAX_RUN_TIME = DAY
# How far the clocks of host and database may differ.
_CLOCK_TOLERANCE = 5 * SECOND


def create_query_function(context: WorkflowContext, *, person: str = "") -> QueryRunner:
    """Return the function that answers the queries of a check.

    person: the requester; earlier runs are limited to those that they may view. "" for the service
    itself, which may view all.
    """

    def run_query(host: str, query: Query[T], /) -> T:
        if isinstance(query, KeyturnHistoryQuery):
            return cast("T", _query_own_runs(context, host, query, person))
        if isinstance(query, EarlierReportQuery):
            return cast("T", _query_earlier_check(context, host, query, person))
        return context.fleet.run_query(host, query)

    return run_query


def _get_view_rights(context: WorkflowContext, person: str) -> ViewRights | None:
    return context.policies.get_policy().get_view_rights(person) if person else None


def _query_own_runs(
    context: WorkflowContext, host: str, own_runs_query: KeyturnHistoryQuery, person: str
) -> KeyturnHistory:
    """Return what Keyturn did on a host, and when its runs may have used sudo there."""
    since = round(own_runs_query.since.timestamp()) * SECOND
    known = context.policies.get_policy().inventory.hosts.get(host)
    logins = {login.user for login in (known, known.reader if known else None) if login}
    with context.database.reading(_get_view_rights(context, person)) as tx:
        found = search.find_newest_runs(
            tx, RunFilter(host=host, since=since - _MAX_RUN_TIME), most=_MAX_RUNS
        )
        # Schedules and parent runs send nothing themselves.
        alone = [run for run in found if not run.hosts and run.timing is None]
        events = [
            _build_event(run, runs.list_decisions(tx, run.parent or run.id))
            for run in alone
            if _has_sent_commands(run) and (run.started_at or 0) >= since
        ]
        spans = [span for run in alone for span in _iterate_run_spans(run, tx.now)]
        now = to_datetime(tx.now)
    # Uses of sudo by root are those of people.
    return KeyturnHistory(tuple(events), frozenset(logins - {"root"}), tuple(spans), now)


def _iterate_run_spans(run: Run, now: int) -> Iterator[RunSpan]:
    """Yield when a run was planned, and when it was executed."""
    ended = run.ended_at if run.ended_at is not None else now
    if run.kind == "change":
        yield _build_span(run, run.requested_at, run.pending_since or run.started_at or ended)
    if run.kind != "change" or run.started_at is not None:
        yield _build_span(run, run.started_at or run.requested_at, ended)


def _build_span(run: Run, begins_at: int, ends_at: int) -> RunSpan:
    what = f"run {run.id}, {run.state}: {run.title}"
    return RunSpan(
        to_datetime(begins_at - _CLOCK_TOLERANCE),
        to_datetime(ends_at + _CLOCK_TOLERANCE),
        run.id,
        run.requested_by,
        what,
    )


def _query_earlier_check(
    context: WorkflowContext, host: str, query: EarlierReportQuery, person: str
) -> EarlierReport | None:
    wanted = RunFilter(host=host, runbook=query.words, states=frozenset({State.SUCCEEDED}))
    with context.database.reading(_get_view_rights(context, person)) as tx:
        for run in search.find_newest_runs(tx, wanted, most=_MAX_EARLIER_RUNS):
            same = all(run.values.get(name) == value for name, value in query.fields.items())
            report = runs.get_run(tx, run.id).report if same else None
            if report is not None and run.ended_at is not None:
                return EarlierReport(to_datetime(run.ended_at), report)
    return None


def _has_sent_commands(run: Run) -> bool:
    return run.kind == "change" and run.started_at is not None and run.state in _STATES_WITH_EFFECT


def _build_event(run: Run, decisions: list[runs.Decision]) -> HostEvent:
    at = to_datetime(run.started_at or run.requested_at)
    approvers = ", ".join(vote.person for vote in decisions if vote.approves)
    approved = f", approved by {approvers}" if approvers else ""
    return HostEvent(
        at,
        "keyturn",
        run.requested_by,
        f"run {run.id}, {run.state}: {run.title}{approved}",
        run.id,
    )
