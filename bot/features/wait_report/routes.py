"""Report on waiting times for approvals, with suggestions for self-service."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, Field

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import InputModel, TimeZoneName
from bot.features.wait_report.report import DEFAULT_DAYS, build_wait_report

router = APIRouter(prefix="/report", tags=["report"])

Seconds = Annotated[float, BeforeValidator(lambda microseconds: microseconds / 1_000_000)]


class WaitRowOut(schemas.OutputModel):
    """One row. Waits are seconds; null if nothing was decided."""

    name: str
    requested: int
    approved: int
    denied: int
    expired: int
    pending: int
    approval_rate: float | None = Field(description="0 to 1.")
    median_wait: Seconds | None = Field(validation_alias="median")
    ninth_decile_wait: Seconds | None = Field(validation_alias="ninth_decile")
    longest_wait: Seconds | None = Field(validation_alias="longest")


class SuggestionOut(schemas.OutputModel):
    """A runbook that could run without approvals."""

    runbook: str
    area: str
    requested: int
    total_wait: Seconds = Field(description="Seconds.")
    median_wait: Seconds = Field(validation_alias="median", description="Seconds.")


class WaitReportOut(schemas.OutputModel):
    """Waiting times for approvals."""

    days: int
    since: schemas.StoredTime = Field(
        description="Start of the report; later than requested if there were too many requests."
    )
    total: WaitRowOut
    by_runbook: Sequence[WaitRowOut] = Field(validation_alias="runbooks")
    by_area: Sequence[WaitRowOut] = Field(validation_alias="areas")
    by_hour: Sequence[WaitRowOut] = Field(
        validation_alias="hours",
        description="24 rows, by the hour of the request in the time zone.",
    )
    self_service: Sequence[SuggestionOut] = Field(validation_alias="suggestions")


class WaitReportQuery(InputModel):
    days: int = Field(DEFAULT_DAYS, ge=1, le=366, description="Number of days until now.")
    zone: TimeZoneName = "UTC"


@router.get("/waiting", operation_id="getWaitReport", summary="Get waiting times for approvals")
def get_wait_report(
    parts: Parts, caller: ReadCaller, query: Annotated[WaitReportQuery, Query()]
) -> WaitReportOut:
    with parts.database.reading(caller.view_rights) as tx:
        found = build_wait_report(tx, caller.policy, days=query.days, zone=query.zone)
    return WaitReportOut.model_validate(found)
