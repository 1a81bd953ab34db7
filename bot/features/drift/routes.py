"""Drift: the values that Keyturn set and watches, and the answers where one changed outside."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator, Field

from bot.api import records, schemas
from bot.api.auth import ApproveCaller, Caller, ReadCaller, RequestCaller
from bot.api.deps import ApiParts, Parts
from bot.api.idempotency import IdempotentRoute
from bot.api.schemas_in import (
    HostName,
    InputModel,
    Reason,
    RunId,
    Timestamp,
    UndoIn,
    Word,
    to_microseconds,
)
from bot.features.drift import rows
from bot.features.drift.actions import DriftActions
from bot.features.drift.details import DriftDetails, read_details
from bot.model.drift_state import DriftState

router = APIRouter(tags=["drift"], route_class=IdempotentRoute)


class DriftKeyOut(schemas.OutputModel):
    """A value that Keyturn set and watches."""

    id: int
    host: str
    name: str = Field(description="What was set on the host, such as `shaping eth0`.")
    state: DriftState
    value: str = Field(
        description="The value on the host at the last reading, or why it could not be read."
    )
    set_value: str = Field(description="The value that the run set, or that a person adopted.")
    run: int = Field(description="The run that set it.")
    since: schemas.StoredTime = Field(
        validation_alias="since_at", description="The first reading in this state."
    )
    last_good_at: schemas.StoredTime = Field(
        validation_alias="good_at",
        description="The last reading in which it was as set, adopted or expected.",
    )
    read_at: schemas.StoredTime
    next_reading_at: schemas.StoredTime = Field(validation_alias="next_at")
    reading_requested_at: schemas.StoredTime | None = Field(
        validation_alias="requested_at",
        description="When a person asked for a reading that is not done yet.",
    )
    is_adopted: Annotated[bool, BeforeValidator(bool)] = Field(
        validation_alias="adopted", description="Whether a person adopted a value that no run set."
    )
    expected_until: schemas.StoredTime | None = Field(
        description="Until when another value is expected."
    )
    expected_range: str = Field(description="The expected numbers; empty for any value.")


class CandidateOut(schemas.OutputModel):
    """An event on the host between the last good and the first bad reading. It is no verdict."""

    at: Annotated[schemas.StoredTime | None, BeforeValidator(schemas.empty_to_none)] = Field(
        description="Null for a source that could not be read."
    )
    kind: str = Field(description="login, start, sudo, package, keyturn or unread.")
    account: str
    description: str


class DriftKeyDetailsOut(DriftKeyOut):
    """A watched value with what may have changed it."""

    request: str = Field(description="What set the value.")
    candidates: Sequence[CandidateOut] = Field(description="Newest first.")
    candidates_hidden: bool = Field(
        description="Whether you may not view what happened on the host by hand."
    )
    refusal: str = Field(description="Why you cannot adopt or expect a value; empty if you can.")

    @classmethod
    def from_details(cls, details: DriftDetails) -> "DriftKeyDetailsOut":
        return cls(
            **vars(DriftKeyOut.model_validate(details.key)),
            request=details.run.request,
            candidates=[CandidateOut.model_validate(one) for one in details.candidates],
            candidates_hidden=details.are_candidates_hidden,
            refusal=details.answer_right.refusal,
        )


class DriftListOut(schemas.OutputModel):
    keys: Sequence[DriftKeyOut]


class ReadingOut(schemas.OutputModel):
    keys: int = Field(
        description="How many values are read within seconds: `reading_requested_at` of each is "
        "null once that is done."
    )


class DriftQuery(InputModel):
    host: Word | None = Field(None, description="Only values of this host.")
    state: DriftState | None = Field(None, description="Only values in this state.")


class AdoptionIn(InputModel):
    """Why the value on the host is accepted."""

    reason: Reason


class ExpectationIn(InputModel):
    """How long, and within what range, a value may vary, and why."""

    until: Timestamp = Field(description="At most a year from now.")
    range: str = Field(
        "", max_length=80, description="LOWEST..HIGHEST, such as 1000..2000; empty for any value."
    )
    reason: Reason


@router.get("/drift", operation_id="listDrift", summary="List watched values")
def list_drift(
    parts: Parts, caller: ReadCaller, query: Annotated[DriftQuery, Query()]
) -> DriftListOut:
    """Those that are not as set come first. At most 500."""
    with parts.database.reading(caller.view_rights) as tx:
        found = rows.list_keys(tx, host=query.host or "", state=query.state)
    return DriftListOut.model_validate({"keys": found})


@router.post(
    "/hosts/{name}/drift",
    operation_id="readDrift",
    summary="Read the watched values of a host now",
    status_code=202,
)
def read_drift(parts: Parts, caller: RequestCaller, name: HostName) -> ReadingOut:
    """Values that were read in the last ten seconds are not read again."""
    return ReadingOut(keys=parts.service.bind(DriftActions).read_host_now(name, person=caller.id))


@router.get("/drift/{number}", operation_id="getDrift", summary="Get a watched value")
def get_drift(parts: Parts, caller: ReadCaller, number: RunId) -> DriftKeyDetailsOut:
    """With what happened on the host between the last good and the first bad reading."""
    with parts.database.reading(caller.view_rights) as tx:
        details = read_details(tx, caller.policy, number, person=caller.id)
    return DriftKeyDetailsOut.from_details(details)


@router.post(
    "/drift/{number}/adopt", operation_id="adoptDrift", summary="Accept the value on the host"
)
def adopt_drift(
    parts: Parts, caller: ApproveCaller, number: RunId, body: AdoptionIn
) -> DriftKeyDetailsOut:
    """Nothing is sent to the host. People who can approve the change can adopt a value."""
    with _record_token_use(parts, caller, number, "adopt"):
        parts.service.bind(DriftActions).adopt_value(number, person=caller.id, reason=body.reason)
    return get_drift(parts, caller, number)


@router.post(
    "/drift/{number}/expect",
    operation_id="expectDrift",
    summary="Expect another value for a while",
)
def expect_drift(
    parts: Parts, caller: ApproveCaller, number: RunId, body: ExpectationIn
) -> DriftKeyDetailsOut:
    """Until then, another value is no drift. People who can approve the change can do this."""
    with _record_token_use(parts, caller, number, "expect"):
        parts.service.bind(DriftActions).expect_value(
            number,
            person=caller.id,
            until=to_microseconds(body.until) or 0,
            value_range=body.range,
            reason=body.reason,
        )
    return get_drift(parts, caller, number)


@router.post(
    "/drift/{number}/restore",
    operation_id="restoreDrift",
    summary="Request the set value again",
    status_code=202,
)
def restore_drift(
    parts: Parts, caller: RequestCaller, number: RunId, body: UndoIn, response: Response
) -> schemas.RunDetailsOut:
    """Returns a run, which is planned and approved like any other."""
    run = parts.service.bind(DriftActions).restore_value(number, body.build_terms(caller))
    return records.respond_with_new_run(parts, caller, run, response)


def _record_token_use(
    parts: ApiParts, caller: Caller, number: int, action: str
) -> AbstractContextManager[None]:
    with parts.database.reading(caller.view_rights) as tx:
        key = rows.get_key(tx, number)
    return records.record_token_use(caller, action, run=key.run, host=key.host, key=key.name)
