"""The first page: what waits for the visitor, what is under way, and what was done last."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from bot.charter import Frost
from bot.charter.drafting import frosts
from bot.policy import Policy
from bot.run import Run, State
from bot.store import glass, runs, search
from bot.store.database import Transaction
from bot.web.apart import apart
from bot.web.pages import page
from bot.web.parts import Here
from bot.web.visitor import Visiting
from bot.workflow import awaited

router = APIRouter()

_MOVING = frozenset({State.ASKED, State.READY, State.STARTING, State.RUNNING, State.UNKNOWN})
_LATEST = 10
_SECOND = 1_000_000
_MOST = 100


@router.get("/")
@apart
def home(request: Request, parts: Here, visitor: Visiting) -> Response:
    with parts.database.reading(visitor.sight) as tx:
        waiting = _in_states(tx, frozenset({State.WAITING}))
        moving = _in_states(tx, _MOVING)
        latest = search.newest(tx, search.Filter(), most=_LATEST)
        votes = runs.votes_on(tx, [run.id for run in (*waiting, *moving, *latest)])
        panes = glass.to_review(tx)
        now = tx.now
        mine = awaited.of(tx, visitor.policy, visitor.id)
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


def _holding(policy: Policy, now: int) -> list[tuple[Frost, int]]:
    """Return the freezes that hold now, each with its end in microseconds."""
    found = frosts(policy, datetime.fromtimestamp(now / _SECOND, UTC))
    return [(one, round(one.ends.timestamp()) * _SECOND) for one in found if one.holds]


def _in_states(tx: Transaction, states: frozenset[State]) -> list[Run]:
    return search.newest(tx, search.Filter(states=states), most=_MOST)
