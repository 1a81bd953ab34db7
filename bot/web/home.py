"""Home page: what needs the user's action, runs in progress, and recent runs."""

from fastapi import APIRouter, Response

from bot.db import break_glass, runs, search
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.model.times import to_datetime, to_microseconds
from bot.policy import Policy
from bot.policy.freezes import FreezePeriod
from bot.queries import pending
from bot.web.run_filter import STATE_GROUPS
from bot.web.visit import PageQuery, Visit

router = APIRouter()

_ACTIVE_STATES = frozenset(
    {State.PLANNING, State.QUEUED, State.STARTING, State.RUNNING, State.UNKNOWN}
)
_MAX_LATEST_RUNS = 10
_MAX_RUNS = 100
_MAX_CARDS = 10

_DAY = 86_400 * 1_000_000


@router.get("/")
def show_home(visit: Visit, page: PageQuery = 1) -> Response:
    with visit.read_viewable() as tx:
        pending_runs = _list_own_open_runs(tx, visit.person)
        active = _list_runs_in_states(tx, _ACTIVE_STATES)
        latest = search.find_newest_runs(tx, search.RunFilter(), most=_MAX_LATEST_RUNS)
        votes = runs.list_decisions_on(tx, [run.id for run in (*pending_runs, *active, *latest)])
        break_glass_uses = break_glass.list_unreviewed(tx)
        now = tx.now
        inbox = pending.read_inbox(tx, visit.policy, visit.person)
        mine_ids = {run.id for run in inbox.runs}
        failed_filter = search.RunFilter(states=STATE_GROUPS["problems"][1], since=now - _DAY)
        failed = search.find_run_numbers(tx, failed_filter, most=_MAX_RUNS)
        tiles = [
            tile
            for pages in visit.deps.pages
            if pages.build_tiles
            for tile in pages.build_tiles(tx)
        ]
    return visit.render(
        "home.html",
        mine=inbox.runs[(page - 1) * _MAX_CARDS : page * _MAX_CARDS],
        mine_count=len(inbox.runs),
        waiting=inbox.count,
        page=page,
        has_next_page=len(inbox.runs) > page * _MAX_CARDS,
        to_sign=inbox.to_sign,
        assignments=inbox.assignments,
        questions=inbox.questions,
        break_glass_uses=break_glass_uses,
        pending=pending_runs,
        active=[run for run in active if run.id not in mine_ids],
        latest=latest,
        proposals=inbox.proposals,
        failed_count=len(failed),
        tiles=tiles,
        votes=votes,
        now=now,
        freezes=_list_active_freezes(visit.policy, now),
    )


def _list_active_freezes(policy: Policy, now: int) -> list[tuple[FreezePeriod, int]]:
    """Return the active freezes, each with its end in microseconds since 1970."""
    freezes = policy.list_freeze_periods(to_datetime(now))
    return [(one, to_microseconds(one.ends_at)) for one in freezes if one.is_active]


def _list_own_open_runs(tx: Transaction, person: str) -> list[Run]:
    """Return what a person has requested or planned, and may still withdraw."""
    own = search.RunFilter(person=person, states=frozenset({State.PENDING, State.PLANNED}))
    return search.find_newest_runs(tx, own, most=_MAX_RUNS)


def _list_runs_in_states(tx: Transaction, states: frozenset[State]) -> list[Run]:
    return search.find_newest_runs(tx, search.RunFilter(states=states), most=_MAX_RUNS)
