"""The page Set up, and its tile on Home until the first approved change."""

from collections.abc import Sequence

from fastapi import APIRouter, Response

from bot.db.database import Transaction
from bot.features.setup.rows import read_first_runs
from bot.features.setup.steps import find_next, list_steps
from bot.web.pages import HomeTile, Pages
from bot.web.visit import Visit

router = APIRouter(prefix="/setup")


def _build_tiles(tx: Transaction) -> Sequence[HomeTile]:
    if read_first_runs(tx).has_changed:
        return []
    return [HomeTile("Set up", "what is still missing", "/setup", is_problem=False)]


PAGES = Pages(router, section="/", build_tiles=_build_tiles)


@router.get("")
def show_setup(visit: Visit) -> Response:
    """Show the steps to the first approved change, and what the next one needs."""
    with visit.read_viewable() as tx:
        runs = read_first_runs(tx)
    steps = list_steps(
        visit.policy,
        runs,
        base_url=visit.deps.base_url,
        enrolling=visit.deps.list_enrolling_hosts(),
    )
    return visit.render(
        "setup/setup.html",
        steps=steps,
        next_step=None if runs.has_changed else find_next(steps),
        done=sum(one.is_done for one in steps),
    )
