"""My second factor: enrolling an app or a key, and confirming those of other people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from bot.auth import second_factors, totp, webauthn
from bot.auth.second_factors import Factor
from bot.auth.webauthn import KeyScope
from bot.web.auth import Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.refusals import NOES, status_of
from bot.web.templating import page
from bot.workflow.approvals import StepUpRequired
from bot.workflow.requests import InvalidRequest
from bot.workflow.second_factor import get_shown_factor, is_factor_valid, is_owner

router = APIRouter(prefix="/second-factor")

Number = Annotated[int, Path(ge=1, le=2_147_483_647)]

_DONE: Mapping[str, str] = {
    "enrolled": "It works. It counts as soon as somebody else has vouched for it: see below.",
    "confirmed": "It counts from now on.",
    "removed": "It is forgotten, and counts no more.",
}


@dataclass(frozen=True)
class Shown:
    """One factor as the page shows it. counts: it may be used."""

    factor: Factor
    counts: bool

    @property
    def word(self) -> str:
        return "Authenticator app" if self.factor.kind == totp.KIND else "Security key"

    @property
    def digest(self) -> str:
        """The digest in groups, so that it can be read out."""
        whole = self.factor.digest
        return " ".join(whole[at : at + 4] for at in range(0, len(whole), 4))


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting, done: str = "") -> Response:
    return _page(request, parts, visitor, notice=_DONE.get(done, ""))


@router.post("/app")
def begin_app(parts: Here, visitor: Visiting) -> Response:
    try:
        factor = parts.workflow.enrolling.begin_app(visitor.id)
    except InvalidRequest:
        return RedirectResponse("/second-factor", 303)
    return RedirectResponse(f"/second-factor/app/{factor.id}", 303)


@router.get("/app/{number}")
def show_app(request: Request, parts: Here, visitor: Visiting, number: Number) -> Response:
    """Show what the app must know, until it has shown a code."""
    return _app_page(request, parts, visitor, number)


@router.post("/app/{number}")
def finish_app(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    try:
        parts.workflow.enrolling.finish_app(visitor.id, number, form.get("code", ""))
    except InvalidRequest as unfit:
        return _app_page(request, parts, visitor, number, status=422, alert=str(unfit))
    return RedirectResponse("/second-factor?done=enrolled", 303)


@router.post("/key/options")
def begin_key(parts: Here, visitor: Visiting) -> Response:
    home = webauthn.scope_of_pages(parts.base_url)
    if home is None:
        return JSONResponse({"why": NO_KEYS}, 422)
    options = parts.workflow.enrolling.begin_key(visitor.id, visitor.session, home)
    return Response(options, media_type="application/json")


@router.post("/key")
def finish_key(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    try:
        home = home_of(parts)
        answer = form.get("credential", "")
        parts.workflow.enrolling.finish_key(visitor.id, visitor.session, home, answer)
    except InvalidRequest as unfit:
        return _page(request, parts, visitor, status=422, alert=str(unfit))
    return RedirectResponse("/second-factor?done=enrolled", 303)


@router.post("/{number}/confirm")
def confirm(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    try:
        parts.workflow.enrolling.confirm(
            visitor.id, visitor.session, number, form.get("digest", "")
        )
    except StepUpRequired:
        return RedirectResponse("/step-up?next=/second-factor", 303)
    except NOES as no:
        return _page(request, parts, visitor, status=status_of(no), alert=_sentence(no))
    return RedirectResponse("/second-factor?done=confirmed", 303)


@router.post("/{number}/remove")
def remove(request: Request, parts: Here, visitor: Visiting, number: Number) -> Response:
    try:
        parts.workflow.enrolling.remove(visitor.id, number)
    except NOES as no:
        return _page(request, parts, visitor, status=status_of(no), alert=_sentence(no))
    return RedirectResponse("/second-factor?done=removed", 303)


NO_KEYS = (
    "Browsers let security keys work only where the pages are reached by a name over HTTPS. An "
    "authenticator app works everywhere."
)


def home_of(parts: WebParts) -> KeyScope:
    """Return where keys of these pages belong. Raises Unfit where they belong to nothing."""
    home = webauthn.scope_of_pages(parts.base_url)
    if home is None:
        raise InvalidRequest(NO_KEYS)
    return home


def _page(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
) -> Response:
    with parts.database.reading(visitor.sight) as tx:
        mine = [factor for factor in second_factors.list_factors(tx, visitor.id) if factor.proven]
        others = (
            second_factors.list_all_factors(tx) if is_owner(visitor.policy, visitor.id) else []
        )
        fresh = get_shown_factor(tx, visitor.policy, person=visitor.id, session=visitor.session)
    return page(
        request,
        "second_factor.html",
        status=status,
        alert=alert,
        notice=notice,
        mine=_seen(visitor, mine),
        others=_seen(visitor, [factor for factor in others if factor.person != visitor.id]),
        owners=_owners(visitor),
        stepped_up=bool(fresh),
        keys=webauthn.scope_of_pages(parts.base_url) is not None,
        no_keys=NO_KEYS,
    )


def _app_page(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
) -> Response:
    try:
        secret = parts.workflow.enrolling.secret(visitor.id, number)
    except InvalidRequest as unfit:
        gone = 404 if status == 200 else status
        return page(
            request,
            "trouble.html",
            status=gone,
            title="There is no such app",
            words=_sentence(unfit),
            code=gone,
        )
    address = totp.provisioning_uri(
        secret, person=visitor.id, host=parts.origin.partition("//")[2]
    )
    return page(
        request,
        "second_factor_app.html",
        status=status,
        alert=alert,
        number=number,
        picture=totp.qr_code(address),
        address=address,
        secret=" ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
    )


def _seen(visitor: Visitor, found: Sequence[Factor]) -> list[Shown]:
    return [Shown(factor, is_factor_valid(visitor.policy, factor)) for factor in found]


def _owners(visitor: Visitor) -> list[str]:
    """Return who could confirm a factor of the visitor's, by name."""
    people = visitor.policy.household.people.values()
    able = [p.name for p in people if p.id != visitor.id and is_owner(visitor.policy, p.id)]
    return sorted(able)


def _sentence(no: Exception) -> str:
    text = str(no)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
