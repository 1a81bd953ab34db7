"""Hosts: their last contact, their host key and their lock. No host is contacted for it."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import HostName, InputModel, Word
from bot.queries.host_status import HostKeyKind, HostStatus, Reachability, list_host_statuses
from connectors.errors import UnknownHostError
from connectors.inventory import Host

router = APIRouter(tags=["hosts"])


class LoginOut(schemas.OutputModel):
    """One login that Keyturn uses on the host."""

    user: str
    purpose: str
    authentication: str = Field(description="The kind of credential, in words.")


class QueuedRunOut(schemas.OutputModel):
    """A run that waits for the lock of a host."""

    run: int = Field(validation_alias="id")
    title: str
    requested_by: str


class HostOut(schemas.OutputModel):
    """One host."""

    name: str
    area: str
    area_title: str
    owners: Sequence[str]
    tags: Sequence[str]
    site: str
    platform: str
    zone: str
    changes: bool = Field(description="Whether changes are allowed on the host.")
    fingerprint: str = Field(
        description="Of the host key that the host must present, or of its certificate authority."
    )
    key: HostKeyKind
    logins: Sequence[LoginOut]
    status: Reachability = Field(description="Result of the last contact.")
    tried_at: schemas.StoredTime | None = Field(description="Time of the last attempt.")
    last_contact_at: schemas.StoredTime | None = Field(
        description="Time of the last successful contact."
    )
    error: str = Field(description="Why the last contact failed.")
    frozen: str = Field(description="The freeze that holds changes there now; empty if none.")
    locked_by: schemas.LockOut | None
    queue: Sequence[QueuedRunOut] = Field(description="Runs that wait for the lock, next first.")

    @classmethod
    def from_status(cls, status: HostStatus) -> "HostOut":
        host, contact = status.host, status.contact
        return cls.model_validate(
            {
                "name": host.name,
                "area": status.area,
                "area_title": status.area_title,
                "owners": status.owners,
                "tags": sorted(host.tags),
                "site": host.site,
                "platform": host.platform,
                "zone": host.zone,
                "changes": host.changes,
                "fingerprint": host.fingerprint,
                "key": status.host_key_kind,
                "logins": status.logins,
                "status": status.reachability,
                "tried_at": contact and contact.tried_at,
                "last_contact_at": contact and contact.answered_at,
                "error": contact.error if contact and contact.kind else "",
                "frozen": status.freeze,
                "locked_by": status.lock,
                "queue": status.queue,
            }
        )


class HostListOut(schemas.OutputModel):
    hosts: Sequence[HostOut]


class HostLockOut(schemas.OutputModel):
    """A host that is locked by a change."""

    host: str
    run: int
    requested_by: str
    since: schemas.StoredTime
    queue: Sequence[QueuedRunOut] = Field(description="Runs that wait for the lock, next first.")


class LockListOut(schemas.OutputModel):
    locks: Sequence[HostLockOut]


class HostQuery(InputModel):
    tag: Word | None = Field(None, description="Only hosts with this tag.")
    area: Word | None = Field(None, description="Only hosts of this area.")
    status: Reachability | None = Field(
        None, description="Only hosts with this status at the last contact."
    )


@router.get("/hosts", operation_id="listHosts", summary="List hosts by name")
def list_hosts(
    parts: Parts, caller: ReadCaller, query: Annotated[HostQuery, Query()]
) -> HostListOut:
    def matches(host: Host) -> bool:
        has_tag = query.tag is None or query.tag in host.tags
        return has_tag and query.area in {None, host.area}

    with parts.database.reading(caller.view_rights) as tx:
        found = [
            status
            for status in list_host_statuses(tx, caller.policy, matches)
            if query.status in {None, status.reachability}
        ]
    return HostListOut(hosts=[HostOut.from_status(status) for status in sorted(found, key=_name)])


@router.get("/hosts/{name}", operation_id="getHost", summary="Get a host")
def get_host(parts: Parts, caller: ReadCaller, name: HostName) -> HostOut:
    try:
        known = caller.policy.inventory[name]
    except UnknownHostError as error:
        raise HTTPException(404, str(error)[:300]) from None
    with parts.database.reading(caller.view_rights) as tx:
        return HostOut.from_status(
            next(list_host_statuses(tx, caller.policy, lambda host: host.name == known.name))
        )


@router.get("/locks", operation_id="listLocks", summary="List locked hosts")
def list_locks(parts: Parts, caller: ReadCaller) -> LockListOut:
    with parts.database.reading(caller.view_rights) as tx:
        found = list(list_host_statuses(tx, caller.policy))
    return LockListOut(
        locks=[
            HostLockOut(
                host=status.host.name,
                run=status.lock.run,
                requested_by=status.holder.requested_by if status.holder else "",
                since=schemas.to_datetime(status.lock.since),
                queue=[QueuedRunOut.model_validate(run) for run in status.queue],
            )
            for status in sorted(found, key=_name)
            if status.lock
        ]
    )


def _name(status: HostStatus) -> str:
    return status.host.name
