"""Step-up page: confirm with a second factor, then return to the page that requires it."""

from functools import partial

from fastapi import APIRouter, Response

from bot.auth import second_factors, totp, webauthn
from bot.queries.second_factor import is_factor_valid
from bot.web.redirects import TargetPageQuery, get_safe_page
from bot.web.second_factor import get_relying_party, respond_with_key_options
from bot.web.visit import Visit, VisitOfPage, add_action
from connectors.errors import DomainError

router = APIRouter(prefix="/step-up")


@router.get("")
def show_step_up(visit: Visit, target_page: TargetPageQuery = "/") -> Response:
    return _render_page(visit, target_page=target_page)


def _render_page(
    visit: VisitOfPage, *, target_page: str = "", refusal: DomainError | None = None
) -> Response:
    with visit.read_viewable() as tx:
        factors = second_factors.list_factors(tx, visit.person)
    kinds = {factor.kind for factor in factors if is_factor_valid(visit.policy, factor)}
    return visit.render(
        "step_up.html",
        refusal=refusal,
        target_page=get_safe_page(target_page or visit.form.get("next", "/"), visit.deps),
        by_code=totp.TOTP_KIND in kinds,
        by_key=webauthn.PASSKEY_KIND in kinds
        and webauthn.build_relying_party(visit.deps.base_url) is not None,
    )


_action = partial(add_action, router, page="/", render=_render_page)


@_action("/code")
def step_up_by_code(visit: Visit) -> str:
    visit.service.step_up.step_up_by_code(visit.person, visit.session, visit.form.get("code", ""))
    return get_safe_page(visit.form.get("next", "/"), visit.deps)


@router.post("/options")
def create_key_challenge(visit: Visit) -> Response:
    """Return the challenge for a security key."""
    create = visit.service.step_up.create_key_challenge
    return respond_with_key_options(visit.deps, partial(create, visit.person, visit.session))


@_action("/key")
def step_up_by_key(visit: Visit) -> str:
    credential = visit.form.get("credential", "")
    visit.service.step_up.step_up_by_key(
        visit.person, visit.session, get_relying_party(visit.deps), credential
    )
    return get_safe_page(visit.form.get("next", "/"), visit.deps)
