"""Hosts: how each was met last, how it is known, what holds it, and what was changed there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response

from bot.db import runs, search
from bot.db.database import Transaction
from bot.hosts.status import HostStatus, Reachability, list_host_status
from bot.model.run import Run
from bot.web.auth import Visiting
from bot.web.deps import Here
from bot.web.diagrams import Timeline, timeline
from bot.web.templating import page
from connectors.errors import UnknownHostError
from connectors.inventory import Host

router = APIRouter(prefix="/hosts")

_MOST = 300
_SHOWN = 20
_DAY = 86_400_000_000
# Days that the timeline goes back, as they are offered.
SPANS = (1, 7, 30, 90)

Name = Annotated[str, Path(max_length=64)]
Typed = Annotated[str, Query(max_length=100)]
Days = Annotated[int, Query(ge=1, le=90)]


@dataclass(frozen=True)
class Area:
    title: str
    owners: Sequence[str]
    hosts: Sequence[HostStatus]


@router.get("")
def listing(
    request: Request,
    parts: Here,
    visitor: Visiting,
    tag: Typed = "",
    area: Typed = "",
    reach: Typed = "",
    host: Typed = "",
) -> Response:
    """Show the hosts by area. Nothing is asked of any of them for it."""

    def fits(one: Host) -> bool:
        named = host.strip().lower() in one.name
        return named and tag in {"", *one.tags} and area in {"", one.area}

    with parts.database.reading(visitor.sight) as tx:
        found = list(list_host_status(tx, visitor.policy, fits))
        now = tx.now
    shown = [one for one in found if reach in {"", one.reach.name.lower()}]
    return page(
        request,
        "hosts.html",
        areas=_areas(shown),
        shown=len(shown),
        locked=[one for one in found if one.lock],
        enrolling=parts.enrolling(),
        typed={"tag": tag, "area": area, "reach": reach, "host": host},
        tags=sorted({each for one in visitor.policy.inventory for each in one.tags}),
        known_areas=visitor.policy.household.areas,
        reaches=list(Reachability),
        total=len(visitor.policy.inventory.hosts),
        now=now,
    )


@router.get("/{name}")
def show(request: Request, parts: Here, visitor: Visiting, name: Name, days: Days = 7) -> Response:
    """Show one host, with the changes of the last days on a line."""
    try:
        host = visitor.policy.inventory[name]
    except UnknownHostError as unknown:
        raise HTTPException(404, f"{unknown}."[:300]) from None
    with parts.database.reading(visitor.sight) as tx:
        standing = next(list_host_status(tx, visitor.policy, lambda one: one.name == host.name))
        changes, line = _changes(tx, host.name, days)
        shown = changes[:_SHOWN]
        votes = runs.list_votes_on(tx, [each.parent or each.id for each in shown])
        now = tx.now
    return page(
        request,
        "host.html",
        one=standing,
        host=host,
        changes=shown,
        more=len(changes) > len(shown),
        votes={each.id: votes.get(each.parent or each.id, ()) for each in shown},
        line=line,
        days=days,
        spans=SPANS,
        now=now,
    )


def _changes(tx: Transaction, host: str, days: int) -> tuple[list[Run], Timeline]:
    """Return the changes that were asked for there, newest first, and where they lie."""
    since = tx.now - days * _DAY
    found = search.search_runs(tx, search.RunFilter(host=host, since=since), most=_MOST).runs
    changes = [run for run in found if run.kind == "change"]
    return changes, timeline(changes, since=since, until=tx.now)


def _areas(found: Sequence[HostStatus]) -> list[Area]:
    areas: dict[str, list[HostStatus]] = {}
    for one in found:
        areas.setdefault(one.area, []).append(one)
    return [Area(hosts[0].area_title, hosts[0].owners, hosts) for hosts in areas.values()]
