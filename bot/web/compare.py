"""Compare page: two runs side by side."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from bot.db.runs import NoSuchRun
from bot.queries.compare import compare_runs, find_runs_to_compare
from bot.web.errors import render_refusal
from bot.web.visit import Visit

router = APIRouter()

RunIdsQuery = Annotated[
    Sequence[Annotated[int, Query(ge=1, le=2_147_483_647)]], Query(max_length=100)
]
RunIdQuery = Annotated[int | None, Query(ge=1, le=2_147_483_647)]


@router.get("/runs/compare")
def compare_runs_page(
    visit: Visit,
    b: RunIdQuery = None,
    a: RunIdQuery = None,
    run: RunIdsQuery = (),
) -> Response:
    """Show run *b* on the right and run *a*, or the previous run of its command, on the left.

    run: the two runs, if they were selected in a list.
    """
    if run and len(run) != 2:
        return render_refusal(visit.request, 422, f"Select two runs to compare, not {len(run)}.")
    if run:
        a, b = sorted(run)
    if b is None:
        raise NoSuchRun("run number is missing: add ?a=1&b=2 to the address")
    with visit.read_viewable() as tx:
        left, right = find_runs_to_compare(tx, b, a, name_person=visit.user.get_person_name)
        now = tx.now
    return visit.render(
        "compare.html",
        left=left and left.run,
        right=right.run,
        sections=compare_runs(left, right) if left else [],
        now=now,
    )
