"""Two runs beside each other, so that one sees what was different this time."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from bot.db.runs import NoSuchRun
from bot.web.auth import CurrentVisitor
from bot.web.deps import WebDeps
from bot.web.templating import render_page
from bot.workflow.compare import compare_runs, find_runs_to_compare

router = APIRouter()

RunIdQuery = Annotated[int | None, Query(ge=1, le=2_147_483_647)]


@router.get("/runs/compare")
def compare_runs_page(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    b: RunIdQuery = None,
    a: RunIdQuery = None,
) -> Response:
    """Show run b on the right, and on the left run a, or the one before that is most like b."""
    if b is None:
        raise NoSuchRun("two runs are compared: say which")
    with parts.database.reading(visitor.view_rights) as tx:
        left, right = find_runs_to_compare(tx, b, a, name_person=visitor.get_person_name)
        now = tx.now
    return render_page(
        request,
        "compare.html",
        left=left and left.run,
        right=right.run,
        sections=compare_runs(left, right) if left else [],
        now=now,
    )
