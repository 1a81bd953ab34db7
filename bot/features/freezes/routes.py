"""Freezes: what holds changes now and next; order one, and end it early."""

from collections.abc import Sequence

from fastapi import APIRouter
from pydantic import Field

from bot.api import schemas
from bot.api.auth import ApproveCaller, ReadCaller
from bot.api.deps import Parts
from bot.api.idempotency import IdempotentRoute
from bot.api.schemas_in import InputModel, Reason, ReasonIn, RunId, Timestamp, to_microseconds
from bot.features.freezes.actions import LONGEST_DAYS, FreezeActions
from bot.features.freezes.facts import apply_freezes
from bot.model.times import to_datetime
from bot.policy.freezes import FreezePeriod

router = APIRouter(prefix="/freezes", tags=["freezes"], route_class=IdempotentRoute)


class ListedFreezeOut(schemas.OutputModel):
    """A freeze of the policy, or one that a person ordered."""

    id: int | None = Field(description="Number by which it is ended; null if freezes.yaml has it.")
    name: str
    active: bool = Field(description="Whether it applies now; otherwise it is upcoming.")
    begins_at: schemas.StoredTime
    ends_at: schemas.StoredTime
    sentence: str = Field(description="What it holds, and when.")
    ordered_by: str | None = Field(description="Who ordered it; null if freezes.yaml has it.")
    reason: str = Field(description="Why it was ordered.")

    @classmethod
    def from_period(cls, period: FreezePeriod) -> "ListedFreezeOut":
        order = period.order
        return cls(
            id=order.number if order else None,
            name=period.name,
            active=period.is_active,
            begins_at=period.begins_at,
            ends_at=period.ends_at,
            sentence=period.sentence,
            ordered_by=order.person if order else None,
            reason=order.reason if order else "",
        )


class FreezeListOut(schemas.OutputModel):
    freezes: Sequence[ListedFreezeOut]


class FreezeIn(InputModel):
    """Which changes wait, how long, and why."""

    hosts: str = Field(
        min_length=1,
        max_length=1000,
        description="Hosts, patterns and tags, or areas, separated by commas: `web*,db1`, "
        "`@nginx`, `edge`; `*` for everything that has an area.",
    )
    until: Timestamp = Field(description=f"At most {LONGEST_DAYS} days from now.")
    reason: Reason


@router.get("", operation_id="listFreezes", summary="List active and upcoming freezes")
def list_freezes(parts: Parts, caller: ReadCaller) -> FreezeListOut:
    """Those of freezes.yaml, and those that people ordered."""
    with parts.database.reading(caller.view_rights) as tx:
        policy, now = apply_freezes(tx, caller.policy), to_datetime(tx.now)
    periods = policy.list_freeze_periods(now)
    return FreezeListOut(freezes=[ListedFreezeOut.from_period(one) for one in periods])


@router.post("", operation_id="orderFreeze", summary="Freeze changes of hosts", status_code=201)
def order_freeze(parts: Parts, caller: ApproveCaller, body: FreezeIn) -> ListedFreezeOut:
    """Changes wait until its end; checks still run. Owners of the hosts' areas can do this."""
    row = parts.service.bind(FreezeActions).order_freeze(
        body.hosts,
        person=caller.id,
        until=to_microseconds(body.until) or 0,
        reason=body.reason,
        source="api",
    )
    return next(one for one in list_freezes(parts, caller).freezes if one.id == row.id)


@router.post(
    "/{number}/end", operation_id="endFreeze", summary="End a freeze that a person ordered"
)
def end_freeze(
    parts: Parts, caller: ApproveCaller, number: RunId, body: ReasonIn
) -> FreezeListOut:
    """What it held starts within seconds. Returns the freezes that are left."""
    parts.service.bind(FreezeActions).end_freeze(
        number, person=caller.id, reason=body.reason, source="api"
    )
    return list_freezes(parts, caller)
