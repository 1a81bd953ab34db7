"""The page of health checks, for those who may stop the service."""

from fastapi import APIRouter, HTTPException, Request, Response

from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    describe_total,
)
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.deps import WebDependencies, WebDeps
from bot.web.templating import render_page

router = APIRouter(prefix="/condition")


@router.get("")
def show_health(request: Request, parts: WebDeps, visitor: CurrentVisitor) -> Response:
    """Show the result of every check, errors first."""
    if not can_view_health(visitor):
        raise HTTPException(403, "Only those who may stop everything see how the service is.")
    order = ("error", "warning", "ok")
    found = sorted(_list_check_results(parts), key=lambda one: order.index(one.level))
    return render_page(request, "condition.html", found=found, total=describe_total(found))


def can_view_health(visitor: Visitor) -> bool:
    return visitor.policy.get_order_ruling(visitor.id, "stop").allowed


def _list_check_results(parts: WebDependencies) -> list[CheckResult]:
    doors = [(name, look()) for name, look in parts.health_checks.items()]
    return [
        *parts.list_check_results(),
        *(
            create_error_result(name.capitalize(), how.message)
            if how.is_broken
            else create_ok_result(name.capitalize(), how.message)
            for name, how in doors
        ),
    ]
