"""Two runs beside each other, so that one sees what was different this time."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from bot.run import Run
from bot.store import runs, search
from bot.store.database import Transaction
from bot.store.runs import NoSuchRun
from bot.store.search import Filter
from bot.web.comparison import Side, compared
from bot.web.pages import page
from bot.web.parts import Here
from bot.web.visitor import Visiting, Visitor

router = APIRouter()

# What was asked so often since with other values was not asked lately with these.
_LATELY = 50

Number = Annotated[int | None, Query(ge=1, le=2_147_483_647)]


@router.get("/runs/compare")
def compare(
    request: Request, parts: Here, visitor: Visiting, b: Number = None, a: Number = None
) -> Response:
    """Show run b on the right, and on the left run a, or the one before that is most like b."""
    if b is None:
        raise NoSuchRun("two runs are compared: say which")
    with parts.database.reading() as tx:
        right = runs.get(tx, b)
        left = _before(tx, right) if a is None else runs.get(tx, a)
        if left is None:
            return page(request, "compare.html", left=None, right=right, sections=[], now=tx.now)
        sides = [_side(tx, run, visitor) for run in (left, right)]
        now = tx.now
    sections = compared(*sides)
    return page(request, "compare.html", left=left, right=right, sections=sections, now=now)


def _before(tx: Transaction, run: Run) -> Run | None:
    """Return the newest earlier run of the runbook on the host: best with the same values."""
    wanted = Filter(host=run.host, words=run.words, before=run.id)
    found = search.newest(tx, wanted, most=_LATELY)
    same = [each for each in found if dict(each.fields) == dict(run.fields)]
    chosen = next(iter(same or found), None)
    return chosen and runs.get(tx, chosen.id)


def _side(tx: Transaction, run: Run, visitor: Visitor) -> Side:
    told = runs.steps_of_all(tx, run.id) if run.hosts else runs.steps(tx, run.id)
    votes = runs.votes(tx, run.parent or run.id)
    return Side(run, votes, {record.n: record for record in told}, visitor.name)
