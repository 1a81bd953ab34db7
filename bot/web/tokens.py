"""API tokens page: list, create and revoke tokens. A new token is shown once."""

from collections.abc import Mapping

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from bot.auth import second_factors, tokens
from bot.auth.tokens import MAX_DAYS, SCOPES
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.queries.second_factor import is_factor_valid
from bot.web.visit import IdPath, Visit, VisitOfPage, add_action
from connectors.errors import DomainError

router = APIRouter(prefix="/tokens")


_NOTICES = {
    "revoked": "The token is revoked.",
    "confirmed": "The agent may act for you with the token, until it expires or you revoke it.",
}


@router.get("")
def show_tokens(visit: Visit) -> Response:
    return _render_page(visit)


@router.post("")
def create_token(visit: Visit) -> Response:
    """Create a token and show it."""
    days = visit.form.get("days", "")
    if _needs_step_up(visit):
        return RedirectResponse("/step-up?next=/tokens", 303)
    try:
        if not (days.isascii() and days.isdecimal() and len(days) < 5):
            raise InvalidRequestError(f"the expiry must be 1 to {MAX_DAYS} days")
        new = visit.service.tokens.create_token(
            person=visit.person,
            scopes=_list_chosen_scopes(visit),
            days=int(days),
            name=visit.form.get("name", ""),
            source="web",
        )
    except InvalidRequestError as error:
        return _render_page(visit, refusal=error)
    return _render_page(visit, new_token=new)


def _list_chosen_scopes(visit: VisitOfPage) -> list[str]:
    return [scope for scope in SCOPES if f"scope-{scope}" in visit.form]


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
    refusal: DomainError | None = None,
    new_token: tuple[tokens.ApiToken, str] | None = None,
    **_token: int,
) -> Response:
    with visit.read_viewable() as tx:
        mine, now = tokens.list_tokens(tx, visit.person), tx.now
    # The form keeps what was typed, except after a token was created.
    form: Mapping[str, str] = {} if new_token else visit.form
    return visit.render(
        "tokens.html",
        refusal=refusal,
        notice=_NOTICES.get(visit.done, ""),
        name=form.get("name", ""),
        days=form.get("days", "30"),
        chosen_scopes=_list_chosen_scopes(visit) if form else ["read"],
        new_token=new_token and new_token[0],
        token_text=new_token[1] if new_token else "",
        active=[one for one in mine if one.is_active(now)],
        scopes=SCOPES,
        max_days=MAX_DAYS,
    )


@add_action(router, "/{number}/confirm", page="/tokens", render=_render_page)
def confirm_token(visit: Visit, number: IdPath) -> str:
    """Agree that an agent acts for the person."""
    if _needs_step_up(visit):
        return "/step-up?next=/tokens"
    try:
        visit.service.tokens.confirm_token(number, person=visit.person, source="web")
    except (InvalidRequestError, NotAllowed):
        raise InvalidRequestError("you have no such token") from None
    return "/tokens?done=confirmed"


@add_action(router, "/{number}/revoke", page="/tokens", render=_render_page)
def revoke_token(visit: Visit, number: IdPath) -> str:
    try:
        visit.service.tokens.revoke_token(number, person=visit.person, source="web")
    except (InvalidRequestError, NotAllowed):
        # Do not reveal whether another person has a token with this number.
        raise InvalidRequestError("you have no such token") from None
    return "/tokens?done=revoked"
