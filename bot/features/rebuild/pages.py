"""Rebuild page: what Keyturn has set on a host, and the request to set it on a new one."""

from fastapi import APIRouter, HTTPException, Response

from bot.features.rebuild.actions import RebuildActions
from bot.web.hosts import HostNamePath
from bot.web.pages import PageLink, Pages
from bot.web.visit import Visit, VisitOfPage, add_action
from connectors.errors import DomainError
from connectors.inventory import Host

router = APIRouter(prefix="/hosts/{name}/rebuild")


def _find_host_page(host: Host) -> str:
    return f"/hosts/{host.name}/rebuild"


PAGES = Pages(router, links=[PageLink("host", "Rebuild", _find_host_page, "copy")])


@router.get("")
def show_rebuild(visit: Visit, name: HostNamePath) -> Response:
    """Show what Keyturn has set on a host, which may have been removed from the inventory."""
    return _render_rebuild(visit, name)


def _render_rebuild(
    visit: VisitOfPage, name: str, *, refusal: DomainError | None = None
) -> Response:
    rebuild = visit.service.bind(RebuildActions).read_rebuild(
        name, view_rights=visit.user.view_rights
    )
    hosts = visit.policy.inventory.hosts
    if rebuild.is_empty and name not in hosts:
        raise HTTPException(404, f"{name} is not in the inventory and has no runs."[:300])
    return visit.render(
        "rebuild/rebuild.html",
        refusal=refusal,
        rebuild=rebuild,
        is_known=name in hosts,
        hosts=sorted(hosts),
        typed=visit.form,
    )


@add_action(router, "", page="/hosts/{name}/rebuild", render=_render_rebuild)
def request_rebuild(visit: Visit, name: HostNamePath) -> str:
    """Plan the same values for another host, and redirect to the plan."""
    run = visit.service.bind(RebuildActions).request_rebuild(
        name,
        visit.plan_terms,
        new_host=visit.form.get("new_host", "").strip().lower(),
    )
    return f"/runs/{run.id}"
