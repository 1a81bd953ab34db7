"""Stepping up: showing one's second factor, and going on to what wants it."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from bot.auth import second_factors, totp, webauthn
from bot.web.auth import Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.redirects import Next, onward
from bot.web.refusals import NOES, status_of
from bot.web.second_factor import NO_KEYS, home_of
from bot.web.templating import page
from bot.workflow.approvals import NotAllowed
from bot.workflow.second_factor import is_factor_valid

router = APIRouter(prefix="/step-up")


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting, to: Next = "/") -> Response:
    return _page(request, parts, visitor, to)


@router.post("/code")
def by_code(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    to = form.get("next", "/")
    try:
        parts.workflow.stepping_up.by_code(visitor.id, visitor.session, form.get("code", ""))
    except NOES as no:
        return _refused(request, parts, visitor, to, no)
    return RedirectResponse(onward(to), 303)


@router.post("/options")
def question(parts: Here, visitor: Visiting) -> Response:
    """Answer with what a key is to sign."""
    home = webauthn.scope_of_pages(parts.base_url)
    if home is None:
        return JSONResponse({"why": NO_KEYS}, 422)
    try:
        options = parts.workflow.stepping_up.question(visitor.id, visitor.session, home)
    except NotAllowed as no:
        return JSONResponse({"why": str(no)}, 403)
    return Response(options, media_type="application/json")


@router.post("/key")
def by_key(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    to = form.get("next", "/")
    try:
        answer = form.get("credential", "")
        parts.workflow.stepping_up.by_key(visitor.id, visitor.session, home_of(parts), answer)
    except NOES as no:
        return _refused(request, parts, visitor, to, no)
    return RedirectResponse(onward(to), 303)


def _refused(
    request: Request, parts: WebParts, visitor: Visitor, to: str, no: Exception
) -> Response:
    return _page(request, parts, visitor, to, status=status_of(no), alert=str(no))


def _page(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    to: str,
    *,
    status: int = 200,
    alert: str = "",
) -> Response:
    with parts.database.reading(visitor.sight) as tx:
        mine = [
            f
            for f in second_factors.list_factors(tx, visitor.id)
            if is_factor_valid(visitor.policy, f)
        ]
    kinds = {factor.kind for factor in mine}
    return page(
        request,
        "step_up.html",
        status=status,
        alert=alert,
        to=onward(to),
        by_code=totp.KIND in kinds,
        by_key=webauthn.KIND in kinds and webauthn.scope_of_pages(parts.base_url) is not None,
    )
