"""Step-up page: confirm with a second factor, then return to the page that requires it."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from bot.auth import second_factors, totp, webauthn
from bot.model.errors import NotAllowed
from bot.queries.second_factor import is_factor_valid
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.redirects import TargetPageQuery, get_safe_page
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.second_factor import KEYS_UNAVAILABLE, get_relying_party
from bot.web.templating import render_page

router = APIRouter(prefix="/step-up")


@router.get("")
def show_step_up(
    request: Request, deps: WebDeps, user: CurrentUser, target_page: TargetPageQuery = "/"
) -> Response:
    return _render_page(request, deps, user, target_page)


@router.post("/code")
def step_up_by_code(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    target_page = form.get("next", "/")
    try:
        deps.service.step_up.step_up_by_code(user.id, user.session_token, form.get("code", ""))
    except REFUSALS as error:
        return _render_refusal(request, deps, user, target_page, error)
    return RedirectResponse(get_safe_page(target_page), 303)


@router.post("/options")
def create_key_challenge(deps: WebDeps, user: CurrentUser) -> Response:
    """Return the challenge for a security key."""
    relying_party = webauthn.build_relying_party(deps.base_url)
    if relying_party is None:
        return JSONResponse({"error": KEYS_UNAVAILABLE}, 422)
    try:
        options = deps.service.step_up.create_key_challenge(
            user.id, user.session_token, relying_party
        )
    except NotAllowed as error:
        return JSONResponse({"error": str(error)}, 403)
    return Response(options, media_type="application/json")


@router.post("/key")
def step_up_by_key(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    target_page = form.get("next", "/")
    try:
        credential = form.get("credential", "")
        deps.service.step_up.step_up_by_key(
            user.id, user.session_token, get_relying_party(deps), credential
        )
    except REFUSALS as error:
        return _render_refusal(request, deps, user, target_page, error)
    return RedirectResponse(get_safe_page(target_page), 303)


def _render_refusal(
    request: Request, deps: WebDependencies, user: User, target_page: str, refusal: Exception
) -> Response:
    return _render_page(
        request, deps, user, target_page, status=get_http_status(refusal), alert=str(refusal)
    )


def _render_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    target_page: str,
    *,
    status: int = 200,
    alert: str = "",
) -> Response:
    with deps.database.reading(user.view_rights) as tx:
        mine = [
            f for f in second_factors.list_factors(tx, user.id) if is_factor_valid(user.policy, f)
        ]
    kinds = {factor.kind for factor in mine}
    return render_page(
        request,
        "step_up.html",
        status=status,
        alert=alert,
        target_page=get_safe_page(target_page),
        by_code=totp.TOTP_KIND in kinds,
        by_key=webauthn.PASSKEY_KIND in kinds
        and webauthn.build_relying_party(deps.base_url) is not None,
    )
