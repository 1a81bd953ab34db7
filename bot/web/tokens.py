"""Tokens: what the visitor's programs come with; a new one is shown once."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.auth import second_factors, tokens
from bot.web.auth import Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.templating import page
from bot.workflow.approvals import NotAllowed, TooLate
from bot.workflow.requests import InvalidRequest
from bot.workflow.second_factor import get_shown_factor, is_factor_valid
from bot.workflow.tokens import LONGEST_DAYS, SCOPES

router = APIRouter(prefix="/tokens")

Number = Annotated[int, Path(ge=1, le=2_147_483_647)]


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting, done: str = "") -> Response:
    notice = "It opens nothing any more." if done == "revoked" else ""
    return _page(request, parts, visitor, notice=notice)


@router.post("")
def make(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    """Make one and show it, this once."""
    days, name = form.get("days", ""), form.get("name", "")
    scopes = [scope for scope in SCOPES if f"scope-{scope}" in form]
    if _lacks_factor(parts, visitor):
        return RedirectResponse("/step-up?next=/tokens", 303)
    try:
        if not (days.isascii() and days.isdecimal() and len(days) < 5):
            raise InvalidRequest(f"say for how many days, 1 to {LONGEST_DAYS}")
        new = parts.workflow.tokens.make(
            person=visitor.id, scopes=scopes, days=int(days), name=name, door="web"
        )
    except InvalidRequest as unfit:
        typed = {"name": name, "days": days, "scopes": scopes}
        return _page(request, parts, visitor, alert=str(unfit), typed=typed)
    return _page(request, parts, visitor, new=new)


@router.post("/{number}/revoke")
def revoke(request: Request, parts: Here, visitor: Visiting, number: Number) -> Response:
    try:
        parts.workflow.tokens.revoke(number, person=visitor.id, door="web")
    except (InvalidRequest, NotAllowed, TooLate) as no:
        # That somebody else has a token with this number is nobody's business.
        words = "there is no such token of yours" if isinstance(no, NotAllowed) else str(no)
        return _page(request, parts, visitor, alert=words)
    return RedirectResponse("/tokens?done=revoked", 303)


def _lacks_factor(parts: WebParts, visitor: Visitor) -> bool:
    """Say whether the visitor has a second factor, and has not just shown it.

    Whoever has taken a session over for an hour would otherwise leave with a token for a year.
    """
    with parts.database.reading(visitor.sight) as tx:
        has = any(
            is_factor_valid(visitor.policy, factor)
            for factor in second_factors.list_factors(tx, visitor.id)
        )
        return has and not get_shown_factor(
            tx, visitor.policy, person=visitor.id, session=visitor.session
        )


def _page(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    *,
    alert: str = "",
    notice: str = "",
    typed: Mapping[str, object] | None = None,
    new: tuple[tokens.Token, str] | None = None,
) -> Response:
    with parts.database.reading(visitor.sight) as tx:
        mine, now = tokens.list_tokens(tx, visitor.id), tx.now
    return page(
        request,
        "tokens.html",
        status=422 if alert else 200,
        alert=alert,
        notice=notice,
        typed=typed or {"name": "", "days": "30", "scopes": ["read"]},
        made=new and new[0],
        whole=new[1] if new else "",
        live=[one for one in mine if one.holds(now)],
        scopes=SCOPES,
        most_days=LONGEST_DAYS,
    )
