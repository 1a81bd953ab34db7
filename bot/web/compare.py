"""Two runs beside each other, so that one sees what was different this time."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from bot.db.runs import NoSuchRun
from bot.web.auth import Visiting
from bot.web.deps import Here
from bot.web.templating import page
from bot.workflow.compare import compare_runs, find_pair

router = APIRouter()

Number = Annotated[int | None, Query(ge=1, le=2_147_483_647)]


@router.get("/runs/compare")
def compare(
    request: Request, parts: Here, visitor: Visiting, b: Number = None, a: Number = None
) -> Response:
    """Show run b on the right, and on the left run a, or the one before that is most like b."""
    if b is None:
        raise NoSuchRun("two runs are compared: say which")
    with parts.database.reading(visitor.sight) as tx:
        left, right = find_pair(tx, b, a, name=visitor.name)
        now = tx.now
    return page(
        request,
        "compare.html",
        left=left and left.run,
        right=right.run,
        sections=compare_runs(left, right) if left else [],
        now=now,
    )
