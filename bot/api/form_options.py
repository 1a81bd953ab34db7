"""Options for the fields of a runbook, and the meaning of a cron expression."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import HostName, InputModel, Word
from bot.model import request_form
from bot.model.schedule import parse_cron
from runbooks import load_catalogue

router = APIRouter()

_DEFAULT_COUNT = 5


class FieldOptionsOut(schemas.OutputModel):
    """Options of one field. A field without `choices` accepts other values too."""

    field: str
    values: Sequence[str]


class HostOptionsOut(schemas.OutputModel):
    runbook: str
    host: str
    fields: Sequence[FieldOptionsOut]


class CronOut(schemas.OutputModel):
    """A cron expression in words, and its next due times."""

    description: str
    next: Sequence[datetime]


class OptionsQuery(InputModel):
    runbook: Word = Field(description="Name of the runbook.", examples=["zfs scrub start"])
    given: Sequence[Word] = Field(
        (),
        max_length=20,
        description="Values that are chosen already: `table=http`.",
        examples=[["table=http"]],
    )


class CronQuery(InputModel):
    cron: Word = Field(description="Cron expression.", examples=["0 3 1 * *"])
    zone: Word = Field("UTC", description="Time zone, such as Europe/Amsterdam.")
    count: int = Field(_DEFAULT_COUNT, ge=1, le=100, description="Number of due times.")


@router.get(
    "/hosts/{name}/options",
    operation_id="listFieldOptions",
    summary="List a host's options for the fields of a runbook",
    tags=["hosts"],
)
def list_field_options(
    parts: Parts, caller: ReadCaller, name: HostName, query: Annotated[OptionsQuery, Query()]
) -> HostOptionsOut:
    """Queries the host, like a check, if you may run checks there and no recent result exists."""
    runbook_name = " ".join(query.runbook.lower().split())
    runbook = load_catalogue().get(runbook_name)
    if runbook is None or name not in caller.policy.inventory.hosts:
        raise HTTPException(404, "unknown host or runbook")
    pairs = (pair.partition("=") for pair in query.given)
    values = {field: value for field, equals, value in pairs if equals}
    options = parts.form_options
    if options is not None:
        options.read_options(
            runbook, host=name, person=caller.id, source="api", form_values=values
        )
    fields = [
        FieldOptionsOut(
            field=field.name,
            values=field.choices
            or (
                options.list_options(
                    runbook, field, host=name, person=caller.id, source="api", form_values=values
                )
                if options
                else ()
            ),
        )
        for field in request_form.list_form_fields(runbook)
        if field.kind != "host"
    ]
    return HostOptionsOut(runbook=runbook_name, host=name, fields=fields)


@router.get(
    "/calendar/cron",
    operation_id="describeCron",
    summary="Get the meaning of a cron expression",
    tags=["schedules"],
)
def describe_cron(
    parts: Parts, caller: ReadCaller, query: Annotated[CronQuery, Query()]
) -> CronOut:
    cron = parse_cron(query.cron, query.zone)
    with parts.database.reading(caller.view_rights) as tx:
        due_times = cron.list_due_times(tx.now, count=query.count)
    return CronOut(
        description=cron.description, next=[schemas.to_datetime(due) for due in due_times]
    )
