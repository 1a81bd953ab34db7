"""The waiting report: how long people wait for approvals, drawn, and what could be lifted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from bot.web.auth import CurrentVisitor
from bot.web.deps import WebDeps
from bot.web.templating import render_page
from bot.workflow.wait_report import DEFAULT_DAYS, WaitRow, build_wait_report

router = APIRouter(prefix="/report")

REPORT_DAYS = (7, 30, DEFAULT_DAYS)

DaysQuery = Annotated[int, Query(ge=1, le=366)]


@dataclass(frozen=True)
class WaitBar:
    """A line with its lengths in hundredths of the longest that is drawn."""

    row: WaitRow
    median_width: float
    ninth_decile_width: float


@router.get("")
def show_wait_report(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, days: DaysQuery = DEFAULT_DAYS
) -> Response:
    """Show the waits of the last days, by runbook, area and hour."""
    with parts.database.reading(visitor.view_rights) as tx:
        found = build_wait_report(tx, visitor.policy, days=days)
    groups: Mapping[str, Sequence[WaitBar]] = {
        "By runbook": _build_bars(found.runbooks),
        "By area": _build_bars(found.areas),
    }
    return render_page(
        request,
        "report.html",
        found=found,
        total=found.total,
        groups=groups,
        hours=_build_bars(found.hours),
        days=days,
        spans=REPORT_DAYS,
    )


def _build_bars(rows: Sequence[WaitRow]) -> list[WaitBar]:
    most = max((line.ninth_decile or 0 for line in rows), default=0) or 1
    return [
        WaitBar(
            line,
            _compute_width(line.median or 0, most),
            _compute_width(line.ninth_decile or 0, most),
        )
        for line in rows
    ]


def _compute_width(value: int, maximum: int) -> float:
    return round(min(value / maximum, 1) * 100, 2)
