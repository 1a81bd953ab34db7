"""The condition of the service, for those who may stop it: what is well, and what to mend."""

from fastapi import APIRouter, HTTPException, Request, Response

from bot.finding import Finding, mend, ok
from bot.web.pages import page
from bot.web.parts import Here, WebParts
from bot.web.visitor import Visiting, Visitor

router = APIRouter(prefix="/condition")


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting) -> Response:
    """Show every finding, what is to be mended first."""
    if not may_look(visitor):
        raise HTTPException(403, "Only those who may stop everything see how the service is.")
    order = ("mend", "note", "ok")
    found = sorted(_found(parts), key=lambda one: order.index(one.mark))
    broken = sum(one.mark == "mend" for one in found)
    return page(request, "condition.html", found=found, broken=broken)


def may_look(visitor: Visitor) -> bool:
    return visitor.policy.may_order(visitor.id, "stop").allowed


def _found(parts: WebParts) -> list[Finding]:
    doors = [(name, look()) for name, look in parts.conditions.items()]
    return [
        *parts.findings(),
        *(
            mend(name.capitalize(), how.words) if how.broken else ok(name.capitalize(), how.words)
            for name, how in doors
        ),
    ]
