"""The waiting report: how long people wait for approvals, drawn, and what could be lifted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from bot.web.auth import Visiting
from bot.web.deps import Here
from bot.web.templating import page
from bot.workflow.wait_report import QUARTER, WaitRow, build_wait_report

router = APIRouter(prefix="/report")

SPANS = (7, 30, QUARTER)

Days = Annotated[int, Query(ge=1, le=366)]


@dataclass(frozen=True)
class Bar:
    """A line with its lengths in hundredths of the longest that is drawn."""

    line: WaitRow
    middle: float
    ninth: float


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting, days: Days = QUARTER) -> Response:
    """Show the waits of the last days, by runbook, area and hour."""
    with parts.database.reading(visitor.sight) as tx:
        found = build_wait_report(tx, visitor.policy, days=days)
    groups: Mapping[str, Sequence[Bar]] = {
        "By runbook": _bars(found.runbooks),
        "By area": _bars(found.areas),
    }
    return page(
        request,
        "report.html",
        found=found,
        total=found.total,
        groups=groups,
        hours=_bars(found.hours),
        days=days,
        spans=SPANS,
    )


def _bars(lines: Sequence[WaitRow]) -> list[Bar]:
    most = max((line.ninth or 0 for line in lines), default=0) or 1
    return [
        Bar(line, _share(line.middle or 0, most), _share(line.ninth or 0, most)) for line in lines
    ]


def _share(length: int, most: int) -> float:
    return round(min(length / most, 1) * 100, 2)
