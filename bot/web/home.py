"""The first page: what waits for the visitor, what is under way, and what was done last."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from bot.db import break_glass, runs, search
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.policy import Policy
from bot.policy.summary.build import summarise_freezes
from bot.policy.summary.model import FreezeSummary
from bot.web.auth import CurrentVisitor
from bot.web.deps import WebDeps
from bot.web.templating import render_page
from bot.workflow import pending

router = APIRouter()

_ACTIVE_STATES = frozenset(
    {State.PLANNING, State.QUEUED, State.STARTING, State.RUNNING, State.UNKNOWN}
)
_MAX_LATEST_RUNS = 10
_MICROSECONDS_PER_SECOND = 1_000_000
_MAX_RUNS = 100


@router.get("/")
def show_home(request: Request, parts: WebDeps, visitor: CurrentVisitor) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        waiting = _list_runs_in_states(tx, frozenset({State.PENDING}))
        moving = _list_runs_in_states(tx, _ACTIVE_STATES)
        latest = search.find_newest_runs(tx, search.RunFilter(), most=_MAX_LATEST_RUNS)
        votes = runs.list_votes_on(tx, [run.id for run in (*waiting, *moving, *latest)])
        panes = break_glass.list_unreviewed(tx)
        now = tx.now
        mine = pending.list_runs_awaiting_person(tx, visitor.policy, visitor.id)
        known = {run.id for run in mine}
    return render_page(
        request,
        "home.html",
        mine=mine,
        panes=panes,
        asked=[run for run in waiting if run.requested_by == visitor.id],
        moving=[run for run in moving if run.id not in known],
        latest=latest,
        votes=votes,
        now=now,
        freezes=_list_active_freezes(visitor.policy, now),
    )


def _list_active_freezes(policy: Policy, now: int) -> list[tuple[FreezeSummary, int]]:
    """Return the freezes that hold now, each with its end in microseconds."""
    found = summarise_freezes(policy, datetime.fromtimestamp(now / _MICROSECONDS_PER_SECOND, UTC))
    return [
        (one, round(one.ends_at.timestamp()) * _MICROSECONDS_PER_SECOND)
        for one in found
        if one.is_active
    ]


def _list_runs_in_states(tx: Transaction, states: frozenset[State]) -> list[Run]:
    return search.find_newest_runs(tx, search.RunFilter(states=states), most=_MAX_RUNS)
