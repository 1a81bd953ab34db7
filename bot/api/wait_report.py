"""The report: how long people wait for approvals, and what could be lifted to self-service."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api import schemas
from bot.api.auth import Reading
from bot.api.deps import Here
from bot.api.schemas_in import Given
from bot.workflow.wait_report import (
    DEFAULT_DAYS,
    SelfServiceSuggestion,
    WaitRow,
    build_wait_report,
)

router = APIRouter(prefix="/report", tags=["report"])

_SECOND = 1_000_000


class LineShape(schemas.Shape):
    """One row. Waits are seconds; null where nothing was decided. approval_rate: 0 to 1."""

    name: str
    requested: int
    approved: int
    denied: int
    expired: int
    pending: int
    approval_rate: float | None
    median_wait: float | None
    ninth_decile_wait: float | None
    longest_wait: float | None

    @classmethod
    def of(cls, line: WaitRow) -> "LineShape":
        return cls(
            name=line.name,
            requested=line.requested,
            approved=line.approved,
            denied=line.denied,
            expired=line.expired,
            pending=line.pending,
            approval_rate=line.approval_rate,
            median_wait=_seconds(line.median),
            ninth_decile_wait=_seconds(line.ninth_decile),
            longest_wait=_seconds(line.longest),
        )


class SuggestionShape(schemas.Shape):
    """What could go without approvals. rule: text for policy.cedar. at_once: of those asked for,
    how many would not have waited; replayed: the replay with it in a line.
    """

    runbook: str
    area: str
    requested: int
    waited: float
    median_wait: float
    rule: str
    at_once: int
    replayed: str

    @classmethod
    def of(cls, lift: SelfServiceSuggestion) -> "SuggestionShape":
        return cls(
            runbook=lift.runbook,
            area=lift.area,
            requested=lift.requested,
            waited=lift.total_wait / _SECOND,
            median_wait=lift.median / _SECOND,
            rule=lift.rule,
            at_once=lift.without_waiting,
            replayed=lift.replay_summary,
        )


class Waiting(schemas.Shape):
    """since: how far it goes back: less than was asked for where more was going on than is looked
    at. hours: 24, by the hour of asking in UTC.
    """

    days: int
    since: datetime
    total: LineShape
    by_runbook: Sequence[LineShape]
    by_area: Sequence[LineShape]
    by_hour: Sequence[LineShape]
    self_service: Sequence[SuggestionShape]


class Back(Given):
    days: int = Field(DEFAULT_DAYS, ge=1, le=366)


@router.get("/waiting", operation_id="reportWaiting", summary="Say how long people wait")
def waiting(parts: Here, caller: Reading, wanted: Annotated[Back, Query()]) -> Waiting:
    with parts.database.reading(caller.sight) as tx:
        found = build_wait_report(tx, caller.policy, days=wanted.days)
    return Waiting(
        days=found.days,
        since=schemas.to_datetime(found.since),
        total=LineShape.of(found.total),
        by_runbook=[LineShape.of(line) for line in found.runbooks],
        by_area=[LineShape.of(line) for line in found.areas],
        by_hour=[LineShape.of(line) for line in found.hours],
        self_service=[SuggestionShape.of(lift) for lift in found.suggestions],
    )


def _seconds(length: int | None) -> float | None:
    return None if length is None else length / _SECOND
