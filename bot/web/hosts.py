"""Hosts: how each was met last, how it is known, what holds it, and what was changed there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response

from bot.db import runs, search
from bot.db.database import Transaction
from bot.hosts.status import HostStatus, Reachability, list_host_statuses
from bot.model.run import Run
from bot.web.auth import CurrentVisitor
from bot.web.deps import WebDeps
from bot.web.diagrams import ChangeTimeline, build_timeline
from bot.web.templating import render_page
from connectors.errors import UnknownHostError
from connectors.inventory import Host

router = APIRouter(prefix="/hosts")

_MAX_RUNS = 300
_MAX_SHOWN_CHANGES = 20
_MICROSECONDS_PER_DAY = 86_400_000_000
# Days that the timeline goes back, as they are offered.
TIMELINE_DAYS = (1, 7, 30, 90)

HostNamePath = Annotated[str, Path(max_length=64)]
FilterQuery = Annotated[str, Query(max_length=100)]
DaysQuery = Annotated[int, Query(ge=1, le=90)]


@dataclass(frozen=True)
class HostsOfArea:
    title: str
    owners: Sequence[str]
    hosts: Sequence[HostStatus]


@router.get("")
def list_hosts(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    tag: FilterQuery = "",
    area: FilterQuery = "",
    reach: FilterQuery = "",
    host: FilterQuery = "",
) -> Response:
    """Show the hosts by area. Nothing is asked of any of them for it."""

    def fits(one: Host) -> bool:
        named = host.strip().lower() in one.name
        return named and tag in {"", *one.tags} and area in {"", one.area}

    with parts.database.reading(visitor.view_rights) as tx:
        found = list(list_host_statuses(tx, visitor.policy, fits))
        now = tx.now
    shown = [one for one in found if reach in {"", one.reachability.name.lower()}]
    return render_page(
        request,
        "hosts.html",
        areas=_group_by_area(shown),
        shown=len(shown),
        locked=[one for one in found if one.lock],
        enrolling=parts.list_enrolling_hosts(),
        typed={"tag": tag, "area": area, "reach": reach, "host": host},
        tags=sorted({each for one in visitor.policy.inventory for each in one.tags}),
        known_areas=visitor.policy.organisation.areas,
        reaches=list(Reachability),
        total=len(visitor.policy.inventory.hosts),
        now=now,
    )


@router.get("/{name}")
def show_host(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    name: HostNamePath,
    days: DaysQuery = 7,
) -> Response:
    """Show one host, with the changes of the last days on a line."""
    try:
        host = visitor.policy.inventory[name]
    except UnknownHostError as unknown:
        raise HTTPException(404, f"{unknown}."[:300]) from None
    with parts.database.reading(visitor.view_rights) as tx:
        standing = next(list_host_statuses(tx, visitor.policy, lambda one: one.name == host.name))
        changes, line = _list_changes(tx, host.name, days)
        shown = changes[:_MAX_SHOWN_CHANGES]
        votes = runs.list_votes_on(tx, [each.parent or each.id for each in shown])
        now = tx.now
    return render_page(
        request,
        "host.html",
        one=standing,
        host=host,
        changes=shown,
        more=len(changes) > len(shown),
        votes={each.id: votes.get(each.parent or each.id, ()) for each in shown},
        line=line,
        days=days,
        spans=TIMELINE_DAYS,
        now=now,
    )


def _list_changes(tx: Transaction, host: str, days: int) -> tuple[list[Run], ChangeTimeline]:
    """Return the changes that were asked for there, newest first, and where they lie."""
    since = tx.now - days * _MICROSECONDS_PER_DAY
    found = search.search_runs(tx, search.RunFilter(host=host, since=since), most=_MAX_RUNS).runs
    changes = [run for run in found if run.kind == "change"]
    return changes, build_timeline(changes, since=since, until=tx.now)


def _group_by_area(host_statuses: Sequence[HostStatus]) -> list[HostsOfArea]:
    areas: dict[str, list[HostStatus]] = {}
    for one in host_statuses:
        areas.setdefault(one.area, []).append(one)
    return [HostsOfArea(hosts[0].area_title, hosts[0].owners, hosts) for hosts in areas.values()]
