"""Tokens: what the visitor's programs come with; a new one is shown once."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.auth import second_factors, tokens
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.templating import render_page
from bot.workflow.second_factor import get_shown_factor, is_factor_valid
from bot.workflow.tokens import MAX_DAYS, SCOPES

router = APIRouter(prefix="/tokens")

TokenIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]


@router.get("")
def show_tokens(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, done: str = ""
) -> Response:
    notice = "It opens nothing any more." if done == "revoked" else ""
    return _render_page(request, parts, visitor, notice=notice)


@router.post("")
def create_token(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    """Make one and show it, this once."""
    days, name = form.get("days", ""), form.get("name", "")
    scopes = [scope for scope in SCOPES if f"scope-{scope}" in form]
    if _needs_step_up(parts, visitor):
        return RedirectResponse("/step-up?next=/tokens", 303)
    try:
        if not (days.isascii() and days.isdecimal() and len(days) < 5):
            raise InvalidRequestError(f"say for how many days, 1 to {MAX_DAYS}")
        new = parts.workflow.tokens.create_token(
            person=visitor.id, scopes=scopes, days=int(days), name=name, source="web"
        )
    except InvalidRequestError as unfit:
        typed = {"name": name, "days": days, "scopes": scopes}
        return _render_page(request, parts, visitor, alert=str(unfit), typed=typed)
    return _render_page(request, parts, visitor, new_token=new)


@router.post("/{number}/revoke")
def revoke_token(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: TokenIdPath
) -> Response:
    try:
        parts.workflow.tokens.revoke_token(number, person=visitor.id, source="web")
    except (InvalidRequestError, NotAllowed, TooLate) as no:
        # That somebody else has a token with this number is nobody's business.
        words = "there is no such token of yours" if isinstance(no, NotAllowed) else str(no)
        return _render_page(request, parts, visitor, alert=words)
    return RedirectResponse("/tokens?done=revoked", 303)


def _needs_step_up(parts: WebDependencies, visitor: Visitor) -> bool:
    """Say whether the visitor has a second factor, and has not just shown it.

    Whoever has taken a session over for an hour would otherwise leave with a token for a year.
    """
    with parts.database.reading(visitor.view_rights) as tx:
        has = any(
            is_factor_valid(visitor.policy, factor)
            for factor in second_factors.list_factors(tx, visitor.id)
        )
        return has and not get_shown_factor(
            tx, visitor.policy, person=visitor.id, session=visitor.session_token
        )


def _render_page(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    *,
    alert: str = "",
    notice: str = "",
    typed: Mapping[str, object] | None = None,
    new_token: tuple[tokens.ApiToken, str] | None = None,
) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        mine, now = tokens.list_tokens(tx, visitor.id), tx.now
    return render_page(
        request,
        "tokens.html",
        status=422 if alert else 200,
        alert=alert,
        notice=notice,
        typed=typed or {"name": "", "days": "30", "scopes": ["read"]},
        made=new_token and new_token[0],
        whole=new_token[1] if new_token else "",
        live=[one for one in mine if one.is_active(now)],
        scopes=SCOPES,
        most_days=MAX_DAYS,
    )
