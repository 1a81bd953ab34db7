"""The first page: what waits for the visitor, what is under way, and what was done last."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from bot.db import break_glass, runs, search
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.policy import Policy
from bot.policy.summary.build import list_freezes
from bot.policy.summary.model import FreezeSummary
from bot.web.auth import Visiting
from bot.web.deps import Here
from bot.web.templating import page
from bot.workflow import pending

router = APIRouter()

_MOVING = frozenset({State.ASKED, State.READY, State.STARTING, State.RUNNING, State.UNKNOWN})
_LATEST = 10
_SECOND = 1_000_000
_MOST = 100


@router.get("/")
def home(request: Request, parts: Here, visitor: Visiting) -> Response:
    with parts.database.reading(visitor.sight) as tx:
        waiting = _in_states(tx, frozenset({State.WAITING}))
        moving = _in_states(tx, _MOVING)
        latest = search.find_newest_runs(tx, search.RunFilter(), most=_LATEST)
        votes = runs.list_votes_on(tx, [run.id for run in (*waiting, *moving, *latest)])
        panes = break_glass.list_unreviewed(tx)
        now = tx.now
        mine = pending.list_pending_for(tx, visitor.policy, visitor.id)
        known = {run.id for run in mine}
    return page(
        request,
        "home.html",
        mine=mine,
        panes=panes,
        asked=[run for run in waiting if run.asked_by == visitor.id],
        moving=[run for run in moving if run.id not in known],
        latest=latest,
        votes=votes,
        now=now,
        freezes=_holding(visitor.policy, now),
    )


def _holding(policy: Policy, now: int) -> list[tuple[FreezeSummary, int]]:
    """Return the freezes that hold now, each with its end in microseconds."""
    found = list_freezes(policy, datetime.fromtimestamp(now / _SECOND, UTC))
    return [(one, round(one.ends.timestamp()) * _SECOND) for one in found if one.holds]


def _in_states(tx: Transaction, states: frozenset[State]) -> list[Run]:
    return search.find_newest_runs(tx, search.RunFilter(states=states), most=_MOST)
