"""Health page, for those who are allowed to stop everything."""

from fastapi import APIRouter, HTTPException, Request, Response

from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    describe_total,
)
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.templating import render_page

router = APIRouter(prefix="/health")

_SUBJECTS = {"ssh": "SSH"}


@router.get("")
def show_health(request: Request, deps: WebDeps, user: CurrentUser) -> Response:
    """Show the result of every check, errors first."""
    if not can_view_health(user):
        raise HTTPException(
            403, "The health page is for people who are allowed to stop everything."
        )
    order = ("error", "warning", "ok")
    results = sorted(_list_check_results(deps), key=lambda one: order.index(one.level))
    return render_page(request, "health.html", results=results, total=describe_total(results))


def can_view_health(user: User) -> bool:
    """Return whether the user may see the health page."""
    return user.policy.get_order_ruling(user.id, "stop").allowed


def _list_check_results(deps: WebDependencies) -> list[CheckResult]:
    components = [(name, check()) for name, check in deps.health_checks.items()]
    return [
        *deps.list_check_results(),
        *(
            create_error_result(_SUBJECTS.get(name, name.capitalize()), health.message)
            if health.is_broken
            else create_ok_result(_SUBJECTS.get(name, name.capitalize()), health.message)
            for name, health in components
        ),
    ]
