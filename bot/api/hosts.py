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
from bot.hosts.status import HostKeyKind, HostStatus, Reachability, list_host_status
from bot.model.run import Run
from connectors.errors import UnknownHostError
from connectors.inventory import Host

router = APIRouter(tags=["hosts"])


class LoginShape(schemas.Shape):
    """One way to log in. by: what opens it, in words and never itself."""

    user: str
    purpose: str
    by: str


class WaitingShape(schemas.Shape):
    """A run that waits for its turn on a host."""

    run: int
    title: str
    asked_by: str

    @classmethod
    def of(cls, run: Run) -> "WaitingShape":
        return cls(run=run.id, title=run.title, asked_by=run.asked_by)


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
    reach: Reachability = Field(description="How it was met last, by a run or a check.")
    met_at: datetime | None
    answered_at: datetime | None
    trouble: str = Field(description="What stood in the way then, in words.")
    frozen: str = Field(description="Why changes wait there now; empty if they do not.")
    locked_by: schemas.LockShape | None
    waiting: Sequence[WaitingShape]

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
            key=one.pin,
            logins=[LoginShape(**vars(login)) for login in one.logins],
            reach=one.reach,
            met_at=schemas.moment(contact and contact.met),
            answered_at=schemas.moment(contact and contact.answered),
            trouble=contact.trouble if contact else "",
            frozen=one.frozen,
            locked_by=schemas.LockShape.of(one.lock),
            waiting=[WaitingShape.of(run) for run in one.line],
        )


class HostList(schemas.Shape):
    hosts: Sequence[HostShape]


class HeldShape(schemas.Shape):
    """A host that a change holds. asked_by: whose run that is. waiting: the next first."""

    host: str
    run: int
    asked_by: str
    since: datetime
    waiting: Sequence[WaitingShape]


class LockList(schemas.Shape):
    locks: Sequence[HeldShape]


class HostFilter(Given):
    tag: Word | None = None
    area: Word | None = None
    reach: Reachability | None = None


@router.get("/hosts", operation_id="listHosts", summary="List hosts, by name")
def hosts(parts: Here, caller: Reading, wanted: Annotated[HostFilter, Query()]) -> HostList:
    def fits(host: Host) -> bool:
        tagged = wanted.tag is None or wanted.tag in host.tags
        return tagged and wanted.area in {None, host.area}

    with parts.database.reading(caller.sight) as tx:
        found = [
            one
            for one in list_host_status(tx, caller.policy, fits)
            if wanted.reach in {None, one.reach}
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
            next(list_host_status(tx, caller.policy, lambda one: one.name == known.name))
        )


@router.get("/locks", operation_id="listLocks", summary="List hosts that a change holds")
def locks(parts: Here, caller: Reading) -> LockList:
    with parts.database.reading(caller.sight) as tx:
        found = list(list_host_status(tx, caller.policy))
    return LockList(
        locks=[
            HeldShape(
                host=one.host.name,
                run=one.lock.run,
                asked_by=one.holder.asked_by if one.holder else "",
                since=schemas.at(one.lock.since),
                waiting=[WaitingShape.of(run) for run in one.line],
            )
            for one in sorted(found, key=_name)
            if one.lock
        ]
    )


def _name(one: HostStatus) -> str:
    return one.host.name
