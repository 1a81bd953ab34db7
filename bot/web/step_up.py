"""Stepping up: showing one's second factor, and going on to what wants it."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from bot.factor import passkey, totp
from bot.store import factors
from bot.web.blanks import Filled
from bot.web.noes import NOES, status_of
from bot.web.onward import Next, onward
from bot.web.pages import page
from bot.web.parts import Here, WebParts
from bot.web.second_factor import NO_KEYS, home_of
from bot.web.visitor import Visiting, Visitor
from bot.workflow import NotYours
from bot.workflow.second_factor import counts

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
    home = passkey.home(parts.base_url)
    if home is None:
        return JSONResponse({"why": NO_KEYS}, 422)
    try:
        options = parts.workflow.stepping_up.question(visitor.id, visitor.session, home)
    except NotYours as no:
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
        mine = [f for f in factors.of(tx, visitor.id) if counts(visitor.policy, f)]
    kinds = {factor.kind for factor in mine}
    return page(
        request,
        "step_up.html",
        status=status,
        alert=alert,
        to=onward(to),
        by_code=totp.KIND in kinds,
        by_key=passkey.KIND in kinds and passkey.home(parts.base_url) is not None,
    )
