"""Erasure of stored output: requested here, and confirmed by an owner on the web page."""

from collections.abc import Sequence
from datetime import datetime

from fastapi import APIRouter
from pydantic import Field

from bot.api import schemas
from bot.api.auth import Caller, ReadCaller, RequestCaller
from bot.api.deps import ApiParts, Parts
from bot.api.idempotency import IDEMPOTENCY_KEY, IdempotentRoute
from bot.api.schemas_in import ReasonIn, RunId
from bot.audit.change_log import Entry
from bot.audit.output import StoredOutput
from bot.db import runs
from bot.queries import erasure

router = APIRouter(prefix="/runs/{number}/erasure", tags=["runs"], route_class=IdempotentRoute)


class StoredOutputOut(schemas.OutputModel):
    """Output of a host, which is stored apart from the change log."""

    run: int
    step: int = Field(description="0 for the report of a check.")
    entry: int = Field(description="Number of the log entry that has its hash.")
    characters: int

    @classmethod
    def from_output(cls, output: StoredOutput) -> "StoredOutputOut":
        return cls(
            run=output.run_id,
            step=output.step_number,
            entry=output.entry_seq,
            characters=len(output.text),
        )


class ErasureDecisionOut(schemas.OutputModel):
    """Who requested or declined the erasure, and why."""

    person: str
    at: datetime
    reason: str

    @classmethod
    def from_entry(cls, entry: Entry | None) -> "ErasureDecisionOut | None":
        if entry is None:
            return None
        return cls(
            person=entry.person,
            at=schemas.to_datetime(entry.at),
            reason=str(entry.facts.get("reason", "")),
        )


class ErasureOut(schemas.OutputModel):
    """The output that an erasure would delete, and its request."""

    outputs: Sequence[StoredOutputOut]
    request: ErasureDecisionOut | None = Field(description="The open request; null if none.")
    declined: ErasureDecisionOut | None = Field(description="The last refusal; null if none.")
    page: str = Field(description="Where another person, an owner of the area, decides.")


@router.get("", operation_id="getErasure", summary="Get the output that can be erased")
def get_erasure(parts: Parts, caller: ReadCaller, number: RunId) -> ErasureOut:
    return _read_erasure(parts, caller, number)


@router.post(
    "",
    operation_id="requestErasure",
    summary="Request the erasure of a run's output",
    status_code=202,
    dependencies=[IDEMPOTENCY_KEY],
)
def request_erasure(
    parts: Parts, caller: RequestCaller, number: RunId, body: ReasonIn
) -> ErasureOut:
    """Another person, an owner of the area, must confirm it on the web page."""
    parts.service.erasure.request_erasure(
        number,
        person=caller.id,
        reason=body.reason,
        source="api",
        login=caller.token.prefix,
    )
    return _read_erasure(parts, caller, number)


def _read_erasure(parts: ApiParts, caller: Caller, run_id: int) -> ErasureOut:
    with parts.database.reading(caller.view_rights) as tx:
        preview = erasure.preview_erasure(tx, runs.get_run(tx, run_id))
    return ErasureOut(
        outputs=[StoredOutputOut.from_output(output) for output in preview.outputs],
        request=ErasureDecisionOut.from_entry(preview.request),
        declined=ErasureDecisionOut.from_entry(preview.declined),
        page=f"{parts.base_url}/runs/{run_id}/erase",
    )
