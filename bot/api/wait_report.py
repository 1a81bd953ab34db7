"""Report on waiting times for approvals, with suggestions for self-service."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import InputModel, TimeZoneName
from bot.queries.wait_report import (
    DEFAULT_DAYS,
    SelfServiceSuggestion,
    WaitRow,
    build_wait_report,
)

router = APIRouter(prefix="/report", tags=["report"])

_SECOND = 1_000_000


class WaitRowOut(schemas.OutputModel):
    """One row. Waits are seconds; null if nothing was decided."""

    name: str
    requested: int
    approved: int
    denied: int
    expired: int
    pending: int
    approval_rate: float | None = Field(description="0 to 1.")
    median_wait: float | None
    ninth_decile_wait: float | None
    longest_wait: float | None

    @classmethod
    def from_row(cls, row: WaitRow) -> "WaitRowOut":
        return cls(
            name=row.name,
            requested=row.requested,
            approved=row.approved,
            denied=row.denied,
            expired=row.expired,
            pending=row.pending,
            approval_rate=row.approval_rate,
            median_wait=_seconds(row.median),
            ninth_decile_wait=_seconds(row.ninth_decile),
            longest_wait=_seconds(row.longest),
        )


class SuggestionOut(schemas.OutputModel):
    """A runbook that could run without approvals."""

    runbook: str
    area: str
    requested: int
    total_wait: float = Field(description="Seconds.")
    median_wait: float = Field(description="Seconds.")
    rule: str = Field(description="Text for policy.cedar.")
    without_waiting: int = Field(
        description="Number of these requests that would not have waited under the rule."
    )
    replay_summary: str = Field(description="Effect of the rule on past requests.")

    @classmethod
    def from_suggestion(cls, suggestion: SelfServiceSuggestion) -> "SuggestionOut":
        return cls(
            runbook=suggestion.runbook,
            area=suggestion.area,
            requested=suggestion.requested,
            total_wait=suggestion.total_wait / _SECOND,
            median_wait=suggestion.median / _SECOND,
            rule=suggestion.rule,
            without_waiting=suggestion.without_waiting,
            replay_summary=suggestion.replay_summary,
        )


class WaitReportOut(schemas.OutputModel):
    """Waiting times for approvals."""

    days: int
    since: datetime = Field(
        description="Start of the report; later than requested if there were too many requests."
    )
    total: WaitRowOut
    by_runbook: Sequence[WaitRowOut]
    by_area: Sequence[WaitRowOut]
    by_hour: Sequence[WaitRowOut] = Field(
        description="24 rows, by the hour of the request in the time zone."
    )
    self_service: Sequence[SuggestionOut]


class WaitReportQuery(InputModel):
    days: int = Field(DEFAULT_DAYS, ge=1, le=366, description="Number of days until now.")
    zone: TimeZoneName = "UTC"


@router.get("/waiting", operation_id="getWaitReport", summary="Get waiting times for approvals")
def get_wait_report(
    parts: Parts, caller: ReadCaller, query: Annotated[WaitReportQuery, Query()]
) -> WaitReportOut:
    with parts.database.reading(caller.view_rights) as tx:
        found = build_wait_report(tx, caller.policy, days=query.days, zone=query.zone)
    return WaitReportOut(
        days=found.days,
        since=schemas.to_datetime(found.since),
        total=WaitRowOut.from_row(found.total),
        by_runbook=[WaitRowOut.from_row(row) for row in found.runbooks],
        by_area=[WaitRowOut.from_row(row) for row in found.areas],
        by_hour=[WaitRowOut.from_row(row) for row in found.hours],
        self_service=[SuggestionOut.from_suggestion(one) for one in found.suggestions],
    )


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / _SECOND
