"""Approval report page: how long requests wait for approval, and what could be self-service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Response

from bot.features.wait_report.report import DEFAULT_DAYS, WaitRow, build_wait_report
from bot.web.pages import PageLink, Pages
from bot.web.templating import get_reader_zone
from bot.web.visit import Visit

router = APIRouter(prefix="/report")

PAGES = Pages(
    router,
    section="/policy",
    links=[
        PageLink("policy", "Approval report", lambda: "/report", "clock"),
        PageLink("results", "Approval report", lambda: "/report"),
    ],
)

REPORT_DAYS = (7, 30, DEFAULT_DAYS)

DaysQuery = Annotated[int, Query(ge=1, le=366)]


@dataclass(frozen=True)
class WaitBar:
    """A row of the report with the widths of its bars, in percent of the longest."""

    row: WaitRow
    median_width: float
    ninth_decile_width: float


@router.get("")
def show_wait_report(visit: Visit, days: DaysQuery = DEFAULT_DAYS) -> Response:
    """Show the waits of the last *days*, by runbook, area and hour."""
    with visit.read_viewable() as tx:
        zone = get_reader_zone(visit.request)
        report = build_wait_report(tx, visit.policy, days=days, zone=zone)
    groups: Mapping[str, Sequence[WaitBar]] = {
        "By runbook": _build_bars(report.runbooks),
        "By area": _build_bars(report.areas),
    }
    return visit.render(
        "wait_report/report.html",
        report=report,
        total=report.total,
        groups=groups,
        hours=_build_bars(report.hours),
        days=days,
        spans=REPORT_DAYS,
    )


def _build_bars(rows: Sequence[WaitRow]) -> list[WaitBar]:
    maximum = max((row.ninth_decile or 0 for row in rows), default=0) or 1

    def compute_width(wait: int | None) -> float:
        return round(min((wait or 0) / maximum, 1) * 100, 2)

    return [
        WaitBar(row, compute_width(row.median), compute_width(row.ninth_decile)) for row in rows
    ]
