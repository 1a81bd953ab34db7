"""Undo of several runs at once: of what a person or a schedule did in a time."""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from bot.api import records, schemas
from bot.api.auth import RequestCaller
from bot.api.deps import Parts
from bot.api.idempotency import IdempotentRoute
from bot.api.schemas_in import Timestamp, UndoIn, Word, to_microseconds
from bot.model.sequence import UndoSelection

router = APIRouter(tags=["runs"], route_class=IdempotentRoute)


class SelectionIn(UndoIn):
    """Which runs to undo: those of a person, of an API token, or of a schedule."""

    person: Word | None = Field(None, description="Id of the person who requested them.")
    token: Word | None = Field(None, description="Prefix of the API token they came with.")
    schedule: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="Number of the schedule. Without `since`, its last due time."
    )
    since: Timestamp | None = Field(None, description="Only runs that began then or later.")
    until: Timestamp | None = Field(None, description="Only runs that began before. Default: now.")
    area: Word | None = Field(None, description="Only on hosts of this area.")


@router.post(
    "/undo",
    operation_id="undoSelection",
    summary="Request the undo of several runs",
    status_code=202,
)
def undo_selection(
    parts: Parts, caller: RequestCaller, body: SelectionIn, response: Response
) -> schemas.RunDetailsOut:
    """One run with one plan and digest. Its child runs undo a change each, the newest first."""
    selection = UndoSelection(
        person=body.person or "",
        token=body.token or "",
        schedule=body.schedule or 0,
        since=to_microseconds(body.since) or 0,
        until=to_microseconds(body.until) or 0,
        area=body.area or "",
    )
    run = parts.service.request_undo_of_selection(selection, body.build_terms(caller))
    return records.respond_with_new_run(parts, caller, run, response)
