"""API tokens page: list, create and revoke tokens. A new token is shown once."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import RedirectResponse

from bot.auth import second_factors, tokens
from bot.auth.tokens import MAX_DAYS, SCOPES
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.queries.second_factor import is_factor_valid
from bot.web.visit import Visit, VisitOfPage

router = APIRouter(prefix="/tokens")

TokenIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]


@router.get("")
def show_tokens(visit: Visit) -> Response:
    return _render_page(visit, notice="The token is revoked." if visit.done == "revoked" else "")


@router.post("")
def create_token(visit: Visit) -> Response:
    """Create a token and show it."""
    form = visit.form
    days, name = form.get("days", ""), form.get("name", "")
    scopes = [scope for scope in SCOPES if f"scope-{scope}" in form]
    if _needs_step_up(visit):
        return RedirectResponse("/step-up?next=/tokens", 303)
    try:
        if not (days.isascii() and days.isdecimal() and len(days) < 5):
            raise InvalidRequestError(f"expiry must be 1 to {MAX_DAYS} days")
        new = visit.service.tokens.create_token(
            person=visit.person, scopes=scopes, days=int(days), name=name, source="web"
        )
    except InvalidRequestError as error:
        typed = {"name": name, "days": days, "scopes": scopes}
        return _render_page(visit, alert=str(error), typed=typed)
    return _render_page(visit, new_token=new)


@router.post("/{number}/revoke")
def revoke_token(visit: Visit, number: TokenIdPath) -> Response:
    try:
        visit.service.tokens.revoke_token(number, person=visit.person, source="web")
    except (InvalidRequestError, NotAllowed, TooLate) as error:
        # Do not reveal that another person has a token with this number.
        alert = "you have no such token" if isinstance(error, NotAllowed) else str(error)
        return _render_page(visit, alert=alert)
    return RedirectResponse("/tokens?done=revoked", 303)


def _needs_step_up(visit: VisitOfPage) -> bool:
    """Return whether the user has a second factor and has not confirmed it recently.

    Without this check, a stolen session of an hour could create a token that lasts a year.
    """
    with visit.read_viewable() as tx:
        factors = second_factors.list_factors(tx, visit.person)
        has = any(is_factor_valid(visit.policy, factor) for factor in factors)
        return has and not visit.is_stepped_up(tx)


def _render_page(
    visit: VisitOfPage,
    *,
    alert: str = "",
    notice: str = "",
    typed: Mapping[str, object] | None = None,
    new_token: tuple[tokens.ApiToken, str] | None = None,
) -> Response:
    with visit.read_viewable() as tx:
        mine, now = tokens.list_tokens(tx, visit.person), tx.now
    return visit.render(
        "tokens.html",
        status=422 if alert else 200,
        alert=alert,
        notice=notice,
        typed=typed or {"name": "", "days": "30", "scopes": ["read"]},
        new_token=new_token and new_token[0],
        token_text=new_token[1] if new_token else "",
        active=[one for one in mine if one.is_active(now)],
        scopes=SCOPES,
        max_days=MAX_DAYS,
    )
