"""Host pages: status from the last contact, host key, lock and changes of each host."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Response

from bot.db import runs, search
from bot.db.database import Transaction
from bot.model.run import Run
from bot.model.run_states import StatusDisplay, Tone
from bot.model.text import format_sentence
from bot.queries.host_status import HostStatus, Reachability, list_host_statuses
from bot.web.badges import HOST_FROZEN_BADGE, HOST_LOCKED_BADGE, REACHABILITY_BADGES, HostTile
from bot.web.pages import read_sections
from bot.web.visit import Visit
from connectors.errors import UnknownHostError
from connectors.inventory import Host

router = APIRouter(prefix="/hosts")

_MAX_RUNS = 300
_MAX_SHOWN_CHANGES = 20
_MICROSECONDS_PER_DAY = 86_400_000_000
# Periods of changes to choose from, in days.
PERIODS_IN_DAYS = (1, 7, 30, 90)

HostNamePath = Annotated[str, Path(max_length=64)]
FilterQuery = Annotated[str, Query(max_length=100)]
DaysQuery = Annotated[int, Query(ge=1, le=90)]


@dataclass(frozen=True)
class HostsOfArea:
    """The hosts of one area, with the area's title and owners."""

    title: str
    owners: Sequence[str]
    hosts: Sequence[HostStatus]
    tiles: Sequence[HostTile]


@router.get("")
def list_hosts(
    visit: Visit,
    tag: FilterQuery = "",
    area: FilterQuery = "",
    status: FilterQuery = "",
    host: FilterQuery = "",
) -> Response:
    """Show the hosts by area, without connecting to any of them."""

    def is_match(one: Host) -> bool:
        has_name = host.strip().lower() in one.name
        return has_name and tag in {"", *one.tags} and area in {"", one.area}

    with visit.read_viewable() as tx:
        statuses = list(list_host_statuses(tx, visit.policy, is_match))
        now = tx.now
    shown = [one for one in statuses if status in {"", one.reachability}]
    return visit.render(
        "hosts.html",
        areas=_group_by_area(shown),
        legend=list(dict.fromkeys(_get_display(one) for one in shown)),
        shown=len(shown),
        locked=[one for one in statuses if one.lock],
        enrolling=visit.deps.list_enrolling_hosts(),
        typed={"tag": tag, "area": area, "status": status, "host": host},
        tags=sorted({each for one in visit.policy.inventory for each in one.tags}),
        known_areas=visit.policy.organisation.areas,
        reachabilities=list(Reachability),
        total=len(visit.policy.inventory.hosts),
        now=now,
    )


@router.get("/{name}")
def show_host(
    visit: Visit,
    name: HostNamePath,
    days: DaysQuery = 7,
) -> Response:
    """Show one host, with its changes of the last *days*."""
    try:
        host = visit.policy.inventory[name]
    except UnknownHostError as error:
        raise HTTPException(404, format_sentence(str(error))[:300]) from None
    with visit.read_viewable() as tx:
        status = next(list_host_statuses(tx, visit.policy, lambda one: one.name == host.name))
        changes = _list_changes(tx, host.name, days)
        shown = changes[:_MAX_SHOWN_CHANGES]
        votes = runs.list_decisions_on(tx, [each.parent or each.id for each in shown])
        parent_states = runs.get_parent_states(tx, shown)
        sections = read_sections(visit.deps.pages, "host", tx, visit.policy, host=host)
        now = tx.now
    return visit.render(
        "host.html",
        host_status=status,
        host=host,
        sections=sections,
        changes=shown,
        parent_states=parent_states,
        more=len(changes) > len(shown),
        votes={each.id: votes.get(each.parent or each.id, ()) for each in shown},
        days=days,
        spans=PERIODS_IN_DAYS,
        now=now,
    )


def _list_changes(tx: Transaction, host: str, days: int) -> list[Run]:
    """Return the changes of a host in the last *days*, newest first."""
    since = tx.now - days * _MICROSECONDS_PER_DAY
    found = search.search_runs(tx, search.RunFilter(host=host, since=since), most=_MAX_RUNS).runs
    return [run for run in found if run.kind == "change"]


def _group_by_area(host_statuses: Sequence[HostStatus]) -> list[HostsOfArea]:
    areas: dict[str, list[HostStatus]] = {}
    for one in host_statuses:
        areas.setdefault(one.area, []).append(one)
    return [
        HostsOfArea(
            hosts[0].area_title, hosts[0].owners, hosts, [_build_tile(one) for one in hosts]
        )
        for hosts in areas.values()
    ]


def _build_tile(status: HostStatus) -> HostTile:
    display, name = _get_display(status), status.host.name
    return HostTile(name, f"/hosts/{name}", f"kt-{display.tone}", display.icon, display.label)


def _get_display(status: HostStatus) -> StatusDisplay:
    """Return what matters most about a host: a failed contact, its lock, a freeze, its status."""
    reachability = REACHABILITY_BADGES[status.reachability]
    if reachability.tone is Tone.DANGER:
        return reachability
    if status.lock:
        return HOST_LOCKED_BADGE
    return HOST_FROZEN_BADGE if status.freeze else reachability
