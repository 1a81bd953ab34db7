"""Filling in: what may be chosen for a runbook's fields, and what a schedule's words mean."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from bot.api import schemas
from bot.api.auth import Reading
from bot.api.deps import Here
from bot.api.schemas_in import Given, Word
from bot.model import request_form
from bot.model.schedule import parse_cron
from runbooks import load_catalogue

router = APIRouter()

_NEXT = 5


class ChoiceShape(schemas.Shape):
    """What may be chosen for a field. Others may be typed, too, where it has no `choices`."""

    field: str
    values: Sequence[str]


class Choices(schemas.Shape):
    runbook: str
    host: str
    fields: Sequence[ChoiceShape]


class Moments(schemas.Shape):
    """What a schedule's words mean. next: the moments at which it would fire."""

    in_words: str
    next: Sequence[datetime]


class Which(Given):
    runbook: Word = Field(examples=["zfs scrub start"])
    given: Sequence[Word] = Field(
        (),
        max_length=20,
        description="What is chosen already: `table=http`.",
        examples=[["table=http"]],
    )


class Cron(Given):
    cron: Word = Field(examples=["0 3 1 * *"])
    zone: Word = "UTC"
    count: int = Field(_NEXT, ge=1, le=100)


@router.get(
    "/hosts/{name}/choices",
    operation_id="listChoices",
    summary="List what a host has for a runbook's fields",
    tags=["hosts"],
)
def choices(parts: Here, caller: Reading, name: str, wanted: Annotated[Which, Query()]) -> Choices:
    """The host is asked, as checks ask it, where that was not done lately and you may."""
    words = " ".join(wanted.runbook.lower().split())
    known = load_catalogue().get(words)
    if known is None or name not in caller.policy.inventory.hosts:
        raise HTTPException(404, "there is no such host, or no such runbook")
    chosen = (each.partition("=") for each in wanted.given)
    given = {field: value for field, equals, value in chosen if equals}
    if parts.offering is not None:
        parts.offering.read_options(
            known, host=name, person=caller.id, source="api", form_values=given
        )
    fields = [
        ChoiceShape(
            field=blank.name,
            values=blank.choices
            or (
                parts.offering.list_options(
                    known, blank, host=name, person=caller.id, source="api", form_values=given
                )
                if parts.offering
                else ()
            ),
        )
        for blank in request_form.list_form_fields(known)
        if blank.kind != "host"
    ]
    return Choices(runbook=words, host=name, fields=fields)


@router.get(
    "/calendar/moments",
    operation_id="listMoments",
    summary="Say what a schedule's words mean",
    tags=["schedules"],
)
def moments(parts: Here, caller: Reading, wanted: Annotated[Cron, Query()]) -> Moments:
    found = parse_cron(wanted.cron, wanted.zone)
    with parts.database.reading(caller.sight) as tx:
        coming = found.list_due_times(tx.now, count=wanted.count)
    return Moments(in_words=found.description, next=[schemas.to_datetime(due) for due in coming])
