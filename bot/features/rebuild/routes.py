"""Rebuild: what Keyturn has set on a host, and the request to set it on a new one."""

from collections.abc import Sequence
from datetime import datetime

from fastapi import APIRouter, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from bot.api import records, schemas
from bot.api.auth import ReadCaller, RequestCaller
from bot.api.deps import Parts
from bot.api.idempotency import IdempotentRoute
from bot.api.schemas_in import HostName, UndoIn, Word
from bot.features.rebuild.actions import RebuildActions
from bot.features.rebuild.readings import Act, Rebuild, SetValue

router = APIRouter(tags=["hosts"], route_class=IdempotentRoute)


class SetValueOut(schemas.OutputModel):
    """A value that Keyturn has set and that is still to be so."""

    key: str = Field(description="What was set, such as `shaping eth0`.")
    run: int = Field(description="The last run that set it.")
    request: str
    requested_by: str
    reason: str
    approved_by: Sequence[str] = Field(description="Ids of the people who approved it.")
    set_at: datetime
    commands: Sequence[str] = Field(description="What was sent, as the plan printed it.")

    @classmethod
    def from_value(cls, value: SetValue) -> "SetValueOut":
        run = value.run
        return cls(
            key=value.key,
            run=run.id,
            request=run.title,
            requested_by=run.requested_by,
            reason=run.reason,
            approved_by=[one.person for one in value.approvals],
            set_at=schemas.to_datetime(run.ended_at or run.requested_at),
            commands=[str(step.command) for step in value.steps],
        )


class AdoptedValueOut(schemas.OutputModel):
    """A value that was set outside Keyturn, and that a person adopted."""

    key: str
    value: str
    adopted_by: str = Field(validation_alias="person")
    reason: str
    adopted_at: schemas.StoredTime = Field(validation_alias="at")
    run: int = Field(description="The run that set the value before.")


class ActOut(schemas.OutputModel):
    """A change that is not repeated, because it sets no lasting value."""

    request: str
    count: int
    last_run: int
    last_at: datetime
    irreversible: bool

    @classmethod
    def from_act(cls, act: Act) -> "ActOut":
        return cls(
            request=act.request,
            count=act.count,
            last_run=act.run.id,
            last_at=schemas.to_datetime(act.run.ended_at or act.run.requested_at),
            irreversible=not act.is_reversible,
        )


class RebuildOut(schemas.OutputModel):
    """What Keyturn knows of what it has done to a host."""

    host: str
    unknown: Sequence[str] = Field(description="What Keyturn does not know, one clause each.")
    values: Sequence[SetValueOut] = Field(description="In the order in which they were set.")
    adopted: Sequence[AdoptedValueOut]
    not_repeated: Sequence[ActOut]

    @classmethod
    def from_rebuild(cls, rebuild: Rebuild) -> "RebuildOut":
        return cls(
            host=rebuild.host,
            unknown=rebuild.unknown,
            values=[SetValueOut.from_value(one) for one in rebuild.values],
            adopted=[AdoptedValueOut.model_validate(one) for one in rebuild.adopted],
            not_repeated=[ActOut.from_act(one) for one in rebuild.acts],
        )


class RebuildIn(UndoIn):
    """Where the values are set again, and why."""

    new_host: Word = Field(description="The host to set them on; the same host is possible.")


@router.get(
    "/hosts/{name}/rebuild",
    operation_id="getRebuild",
    summary="Get what Keyturn has set on a host",
)
def get_rebuild(parts: Parts, caller: ReadCaller, name: HostName) -> RebuildOut:
    """From the runs that you may view. The host may have been removed from the inventory."""
    rebuild = parts.service.bind(RebuildActions).read_rebuild(name, view_rights=caller.view_rights)
    if rebuild.is_empty and name not in caller.policy.inventory.hosts:
        raise HTTPException(404, f"{name[:100]} is not in the inventory and has no runs")
    return RebuildOut.from_rebuild(rebuild)


@router.post(
    "/hosts/{name}/rebuild",
    operation_id="requestRebuild",
    summary="Request on a new host what Keyturn has set on another",
    status_code=202,
)
def request_rebuild(
    parts: Parts, caller: RequestCaller, name: HostName, body: RebuildIn, response: Response
) -> schemas.RunDetailsOut:
    """One run with one plan and digest. Its child runs set a value each, one after the other."""
    run = parts.service.bind(RebuildActions).request_rebuild(
        name,
        body.build_terms(caller),
        new_host=body.new_host,
    )
    return records.respond_with_new_run(parts, caller, run, response)
