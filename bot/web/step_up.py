"""Stepping up: showing one's second factor, and going on to what wants it."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from bot.auth import second_factors, totp, webauthn
from bot.model.errors import NotAllowed
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.redirects import TargetPageQuery, get_safe_page
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.second_factor import KEYS_UNAVAILABLE, get_relying_party
from bot.web.templating import render_page
from bot.workflow.second_factor import is_factor_valid

router = APIRouter(prefix="/step-up")


@router.get("")
def show_step_up(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, to: TargetPageQuery = "/"
) -> Response:
    return _render_page(request, parts, visitor, to)


@router.post("/code")
def step_up_by_code(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    to = form.get("next", "/")
    try:
        parts.workflow.step_up.step_up_by_code(
            visitor.id, visitor.session_token, form.get("code", "")
        )
    except REFUSALS as no:
        return _render_refusal(request, parts, visitor, to, no)
    return RedirectResponse(get_safe_page(to), 303)


@router.post("/options")
def create_key_challenge(parts: WebDeps, visitor: CurrentVisitor) -> Response:
    """Answer with what a key is to sign."""
    home = webauthn.build_relying_party(parts.base_url)
    if home is None:
        return JSONResponse({"why": KEYS_UNAVAILABLE}, 422)
    try:
        options = parts.workflow.step_up.create_key_challenge(
            visitor.id, visitor.session_token, home
        )
    except NotAllowed as no:
        return JSONResponse({"why": str(no)}, 403)
    return Response(options, media_type="application/json")


@router.post("/key")
def step_up_by_key(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    to = form.get("next", "/")
    try:
        answer = form.get("credential", "")
        parts.workflow.step_up.step_up_by_key(
            visitor.id, visitor.session_token, get_relying_party(parts), answer
        )
    except REFUSALS as no:
        return _render_refusal(request, parts, visitor, to, no)
    return RedirectResponse(get_safe_page(to), 303)


def _render_refusal(
    request: Request, parts: WebDependencies, visitor: Visitor, to: str, refusal: Exception
) -> Response:
    return _render_page(
        request, parts, visitor, to, status=get_http_status(refusal), alert=str(refusal)
    )


def _render_page(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    to: str,
    *,
    status: int = 200,
    alert: str = "",
) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        mine = [
            f
            for f in second_factors.list_factors(tx, visitor.id)
            if is_factor_valid(visitor.policy, f)
        ]
    kinds = {factor.kind for factor in mine}
    return render_page(
        request,
        "step_up.html",
        status=status,
        alert=alert,
        to=get_safe_page(to),
        by_code=totp.TOTP_KIND in kinds,
        by_key=webauthn.PASSKEY_KIND in kinds
        and webauthn.build_relying_party(parts.base_url) is not None,
    )
