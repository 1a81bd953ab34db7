"""Health page, for those who are allowed to stop everything."""

from fastapi import APIRouter, HTTPException, Response

from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    describe_total,
)
from bot.web.visit import Visit, VisitOfPage

router = APIRouter(prefix="/health")

_SUBJECTS = {"ssh": "SSH"}


@router.get("")
def show_health(visit: Visit) -> Response:
    """Show the result of every check, errors first."""
    if not can_view_health(visit):
        raise HTTPException(
            403, "The health page is for people who are allowed to stop everything."
        )
    order = ("error", "warning", "ok")
    results = sorted(_list_check_results(visit), key=lambda one: order.index(one.level))
    return visit.render("health.html", results=results, total=describe_total(results))


def can_view_health(visit: VisitOfPage) -> bool:
    """Return whether the user may see the health page."""
    return visit.policy.get_order_ruling(visit.person, "stop").allowed


def _list_check_results(visit: VisitOfPage) -> list[CheckResult]:
    results = [*visit.deps.list_check_results()]
    for name, check in visit.deps.health_checks.items():
        health = check()
        create = create_error_result if health.is_broken else create_ok_result
        results.append(create(_SUBJECTS.get(name, name.capitalize()), health.message))
    return results
