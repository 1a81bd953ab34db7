"""Erasure of stored output: requested here, and confirmed by an owner on the web page."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter
from pydantic import BeforeValidator, Field

from bot.api import schemas
from bot.api.auth import ReadCaller, RequestCaller
from bot.api.deps import Parts
from bot.api.idempotency import IdempotentRoute
from bot.api.schemas_in import ReasonIn, RunId
from bot.audit import events
from bot.audit.change_log import Entry
from bot.db import runs
from bot.features.erasure import readings
from bot.features.erasure.actions import ErasureActions

router = APIRouter(prefix="/runs/{number}/erasure", tags=["runs"], route_class=IdempotentRoute)


class StoredOutputOut(schemas.OutputModel):
    """Output of a host, which is stored apart from the change log."""

    run: int = Field(validation_alias="run_id")
    step: int = Field(validation_alias="step_number", description="0 for the report of a check.")
    entry: int = Field(
        validation_alias="entry_seq", description="Number of the log entry that has its hash."
    )
    characters: Annotated[int, BeforeValidator(len)] = Field(validation_alias="text")


class ErasureDecisionOut(schemas.OutputModel):
    """Who requested or declined the erasure, and why."""

    person: str
    at: schemas.StoredTime
    reason: str

    @classmethod
    def from_entry(cls, entry: Entry | None) -> "ErasureDecisionOut | None":
        event = entry.event if entry else None
        if entry is None or not isinstance(
            event, events.ErasureRequested | events.ErasureDeclined
        ):
            return None
        return cls(
            person=entry.person,
            at=schemas.to_datetime(entry.at),
            reason=event.reason,
        )


class ErasureOut(schemas.OutputModel):
    """The output that an erasure would delete, and its request."""

    outputs: Sequence[StoredOutputOut]
    request: ErasureDecisionOut | None = Field(description="The open request; null if none.")
    declined: ErasureDecisionOut | None = Field(description="The last refusal; null if none.")
    page: str = Field(description="Where another person, an owner of the area, decides.")


@router.get("", operation_id="getErasure", summary="Get the output that can be erased")
def get_erasure(parts: Parts, caller: ReadCaller, number: RunId) -> ErasureOut:
    with parts.database.reading(caller.view_rights) as tx:
        preview = readings.preview_erasure(tx, runs.get_run(tx, number))
    return ErasureOut(
        outputs=[StoredOutputOut.model_validate(output) for output in preview.outputs],
        request=ErasureDecisionOut.from_entry(preview.request),
        declined=ErasureDecisionOut.from_entry(preview.declined),
        page=f"{parts.base_url}/runs/{number}/erase",
    )


@router.post(
    "",
    operation_id="requestErasure",
    summary="Request the erasure of a run's output",
    status_code=202,
)
def request_erasure(
    parts: Parts, caller: RequestCaller, number: RunId, body: ReasonIn
) -> ErasureOut:
    """Another person, an owner of the area, must confirm it on the web page."""
    parts.service.bind(ErasureActions).request_erasure(
        number,
        person=caller.id,
        reason=body.reason,
        source="api",
        login=caller.token.prefix,
    )
    return get_erasure(parts, caller, number)
