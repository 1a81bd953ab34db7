"""Hosts: how each was met last, how it is known, and what holds it. None is asked for it."""

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
from bot.hosts.status import HostKeyKind, HostStatus, Reachability, list_host_statuses
from bot.model.run import Run
from connectors.errors import UnknownHostError
from connectors.inventory import Host

router = APIRouter(tags=["hosts"])


class LoginShape(schemas.Shape):
    """One way to log in. by: what opens it, in words and never itself."""

    user: str
    purpose: str
    by: str


class QueuedRunShape(schemas.Shape):
    """A run that waits for its turn on a host."""

    run: int
    title: str
    requested_by: str

    @classmethod
    def of(cls, run: Run) -> "QueuedRunShape":
        return cls(run=run.id, title=run.title, requested_by=run.requested_by)


class HostShape(schemas.Shape):
    """One host. fingerprint: of the key that it must show, or of the CA. locked_by: the change on
    it now; waiting: the runs in line, the next first.
    """

    name: str
    area: str
    area_title: str
    owners: Sequence[str]
    tags: Sequence[str]
    site: str
    platform: str
    zone: str
    changes: bool
    fingerprint: str
    key: HostKeyKind
    logins: Sequence[LoginShape]
    reachability: Reachability = Field(description="How it was met last, by a run or a check.")
    tried_at: datetime | None
    answered_at: datetime | None
    error: str = Field(description="What stood in the way then, in words.")
    frozen: str = Field(description="Why changes wait there now; empty if they do not.")
    locked_by: schemas.LockShape | None
    waiting: Sequence[QueuedRunShape]

    @classmethod
    def of(cls, one: HostStatus) -> "HostShape":
        host, contact = one.host, one.contact
        return cls(
            name=host.name,
            area=one.area,
            area_title=one.area_title,
            owners=one.owners,
            tags=sorted(host.tags),
            site=host.site,
            platform=host.platform,
            zone=host.zone,
            changes=host.changes,
            fingerprint=host.fingerprint,
            key=one.host_key_kind,
            logins=[
                LoginShape(user=login.user, purpose=login.purpose, by=login.authentication)
                for login in one.logins
            ],
            reachability=one.reachability,
            tried_at=schemas.to_optional_datetime(contact and contact.tried_at),
            answered_at=schemas.to_optional_datetime(contact and contact.answered_at),
            error=contact.error if contact else "",
            frozen=one.freeze,
            locked_by=schemas.LockShape.of(one.lock),
            waiting=[QueuedRunShape.of(run) for run in one.queue],
        )


class HostList(schemas.Shape):
    hosts: Sequence[HostShape]


class HeldLockShape(schemas.Shape):
    """A host that a change holds. requested_by: whose run that is. waiting: the next first."""

    host: str
    run: int
    requested_by: str
    since: datetime
    waiting: Sequence[QueuedRunShape]


class LockList(schemas.Shape):
    locks: Sequence[HeldLockShape]


class HostFilter(Given):
    tag: Word | None = None
    area: Word | None = None
    reachability: Reachability | None = None


@router.get("/hosts", operation_id="listHosts", summary="List hosts, by name")
def hosts(parts: Here, caller: Reading, wanted: Annotated[HostFilter, Query()]) -> HostList:
    def fits(host: Host) -> bool:
        tagged = wanted.tag is None or wanted.tag in host.tags
        return tagged and wanted.area in {None, host.area}

    with parts.database.reading(caller.sight) as tx:
        found = [
            one
            for one in list_host_statuses(tx, caller.policy, fits)
            if wanted.reachability in {None, one.reachability}
        ]
    return HostList(hosts=[HostShape.of(one) for one in sorted(found, key=_name)])


@router.get("/hosts/{name}", operation_id="getHost", summary="Tell about one host")
def host(parts: Here, caller: Reading, name: str) -> HostShape:
    try:
        known = caller.policy.inventory[name]
    except UnknownHostError as unknown:
        raise HTTPException(404, str(unknown)[:300]) from None
    with parts.database.reading(caller.sight) as tx:
        return HostShape.of(
            next(list_host_statuses(tx, caller.policy, lambda one: one.name == known.name))
        )


@router.get("/locks", operation_id="listLocks", summary="List hosts that a change holds")
def locks(parts: Here, caller: Reading) -> LockList:
    with parts.database.reading(caller.sight) as tx:
        found = list(list_host_statuses(tx, caller.policy))
    return LockList(
        locks=[
            HeldLockShape(
                host=one.host.name,
                run=one.lock.run,
                requested_by=one.holder.requested_by if one.holder else "",
                since=schemas.to_datetime(one.lock.since),
                waiting=[QueuedRunShape.of(run) for run in one.queue],
            )
            for one in sorted(found, key=_name)
            if one.lock
        ]
    )


def _name(one: HostStatus) -> str:
    return one.host.name
