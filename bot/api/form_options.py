"""Options for the fields of a runbook."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import HostName, InputModel, Word
from bot.model import request_form
from runbooks import load_catalogue

router = APIRouter()


class FieldOptionsOut(schemas.OutputModel):
    """Options of one field. A field without `choices` accepts other values too."""

    field: str
    values: Sequence[str]


class HostOptionsOut(schemas.OutputModel):
    runbook: str
    host: str
    fields: Sequence[FieldOptionsOut]


class OptionsQuery(InputModel):
    runbook: Word = Field(description="Name of the runbook.", examples=["zfs scrub start"])
    given: Sequence[Word] = Field(
        (),
        max_length=20,
        description="Values that are chosen already: `table=http`.",
        examples=[["table=http"]],
    )


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
