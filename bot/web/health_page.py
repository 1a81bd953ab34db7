"""The page of health checks, for those who may stop the service."""

from fastapi import APIRouter, HTTPException, Request, Response

from bot.model.check_result import CheckResult, describe_total, error, ok
from bot.web.auth import Visiting, Visitor
from bot.web.deps import Here, WebParts
from bot.web.templating import page

router = APIRouter(prefix="/condition")


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting) -> Response:
    """Show the result of every check, errors first."""
    if not may_look(visitor):
        raise HTTPException(403, "Only those who may stop everything see how the service is.")
    order = ("error", "warning", "ok")
    found = sorted(_found(parts), key=lambda one: order.index(one.mark))
    return page(request, "condition.html", found=found, total=describe_total(found))


def may_look(visitor: Visitor) -> bool:
    return visitor.policy.may_order(visitor.id, "stop").allowed


def _found(parts: WebParts) -> list[CheckResult]:
    doors = [(name, look()) for name, look in parts.conditions.items()]
    return [
        *parts.findings(),
        *(
            error(name.capitalize(), how.words) if how.broken else ok(name.capitalize(), how.words)
            for name, how in doors
        ),
    ]
