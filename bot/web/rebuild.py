"""Rebuild page: what Keyturn has set on a host, and the request to set it on a new one."""

from collections.abc import Mapping

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import RedirectResponse

from bot.model.run import RequestOrigin
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.hosts import HostNamePath
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page

router = APIRouter(prefix="/hosts/{name}/rebuild")


@router.get("")
def show_rebuild(
    request: Request, deps: WebDeps, user: CurrentUser, name: HostNamePath
) -> Response:
    """Show what Keyturn has set on a host, which may have been removed from the inventory."""
    return _render_rebuild(request, deps, user, name)


@router.post("")
def request_rebuild(
    request: Request, deps: WebDeps, user: CurrentUser, name: HostNamePath, form: FormValues
) -> Response:
    """Plan the same values for another host, and redirect to the plan."""
    try:
        run = deps.service.request_rebuild(
            name,
            new_host=form.get("new_host", "").strip().lower(),
            person=user.id,
            origin=RequestOrigin("web", user=user.id),
            reason=form.get("reason", ""),
            plan_only=True,
        )
    except REFUSALS as error:
        status = get_http_status(error)
        return _render_rebuild(request, deps, user, name, status, alert=str(error), typed=form)
    return RedirectResponse(f"/runs/{run.id}", 303)


def _render_rebuild(
    request: Request,
    deps: WebDependencies,
    user: User,
    name: str,
    status: int = 200,
    *,
    alert: str = "",
    typed: Mapping[str, str] | None = None,
) -> Response:
    rebuild = deps.service.read_rebuild(name, view_rights=user.view_rights)
    is_known = name in user.policy.inventory.hosts
    if rebuild.is_empty and not is_known:
        raise HTTPException(404, f"{name} is not in the inventory and has no runs."[:300])
    return render_page(
        request,
        "rebuild.html",
        status=status,
        rebuild=rebuild,
        is_known=is_known,
        hosts=sorted(user.policy.inventory.hosts),
        alert=alert[:1].upper() + alert[1:],
        typed=typed or {},
    )
