"""API tokens page: list, create and revoke tokens. A new token is shown once."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.auth import second_factors, tokens
from bot.auth.tokens import MAX_DAYS, SCOPES
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.queries.second_factor import get_shown_factor, is_factor_valid
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.templating import render_page

router = APIRouter(prefix="/tokens")

TokenIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]


@router.get("")
def show_tokens(request: Request, deps: WebDeps, user: CurrentUser, done: str = "") -> Response:
    notice = "The token is revoked." if done == "revoked" else ""
    return _render_page(request, deps, user, notice=notice)


@router.post("")
def create_token(request: Request, deps: WebDeps, user: CurrentUser, form: FormValues) -> Response:
    """Create a token and show it."""
    days, name = form.get("days", ""), form.get("name", "")
    scopes = [scope for scope in SCOPES if f"scope-{scope}" in form]
    if _needs_step_up(deps, user):
        return RedirectResponse("/step-up?next=/tokens", 303)
    try:
        if not (days.isascii() and days.isdecimal() and len(days) < 5):
            raise InvalidRequestError(f"expiry must be 1 to {MAX_DAYS} days")
        new = deps.service.tokens.create_token(
            person=user.id, scopes=scopes, days=int(days), name=name, source="web"
        )
    except InvalidRequestError as error:
        typed = {"name": name, "days": days, "scopes": scopes}
        return _render_page(request, deps, user, alert=str(error), typed=typed)
    return _render_page(request, deps, user, new_token=new)


@router.post("/{number}/revoke")
def revoke_token(
    request: Request, deps: WebDeps, user: CurrentUser, number: TokenIdPath
) -> Response:
    try:
        deps.service.tokens.revoke_token(number, person=user.id, source="web")
    except (InvalidRequestError, NotAllowed, TooLate) as error:
        # Do not reveal that another person has a token with this number.
        alert = "you have no such token" if isinstance(error, NotAllowed) else str(error)
        return _render_page(request, deps, user, alert=alert)
    return RedirectResponse("/tokens?done=revoked", 303)


def _needs_step_up(deps: WebDependencies, user: User) -> bool:
    """Return whether the user has a second factor and has not confirmed it recently.

    Without this check, a stolen session of an hour could create a token that lasts a year.
    """
    with deps.database.reading(user.view_rights) as tx:
        has = any(
            is_factor_valid(user.policy, factor)
            for factor in second_factors.list_factors(tx, user.id)
        )
        return has and not get_shown_factor(
            tx, user.policy, person=user.id, session=user.session_token
        )


def _render_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    *,
    alert: str = "",
    notice: str = "",
    typed: Mapping[str, object] | None = None,
    new_token: tuple[tokens.ApiToken, str] | None = None,
) -> Response:
    with deps.database.reading(user.view_rights) as tx:
        mine, now = tokens.list_tokens(tx, user.id), tx.now
    return render_page(
        request,
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
