"""My second factor: enrolling an app or a key, and confirming those of other people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from bot.auth import second_factors, totp, webauthn
from bot.auth.second_factors import SecondFactor
from bot.auth.webauthn import RelyingParty
from bot.model.errors import InvalidRequestError, StepUpRequired
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page
from bot.workflow.second_factor import get_shown_factor, is_area_owner, is_factor_valid

router = APIRouter(prefix="/second-factor")

FactorIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]

_DONE_NOTICES: Mapping[str, str] = {
    "enrolled": "It works. It counts as soon as somebody else has vouched for it: see below.",
    "confirmed": "It counts from now on.",
    "removed": "It is forgotten, and counts no more.",
}


@dataclass(frozen=True)
class ShownFactor:
    """One factor as the page shows it. counts: it may be used."""

    factor: SecondFactor
    is_valid: bool

    @property
    def kind_label(self) -> str:
        return "Authenticator app" if self.factor.kind == totp.TOTP_KIND else "Security key"

    @property
    def grouped_digest(self) -> str:
        """The digest in groups, so that it can be read out."""
        whole = self.factor.digest
        return " ".join(whole[at : at + 4] for at in range(0, len(whole), 4))


@router.get("")
def show_factors(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, done: str = ""
) -> Response:
    return _render_page(request, parts, visitor, notice=_DONE_NOTICES.get(done, ""))


@router.post("/app")
def begin_app_enrolment(parts: WebDeps, visitor: CurrentVisitor) -> Response:
    try:
        factor = parts.workflow.factor_enrolment.begin_app_enrolment(visitor.id)
    except InvalidRequestError:
        return RedirectResponse("/second-factor", 303)
    return RedirectResponse(f"/second-factor/app/{factor.id}", 303)


@router.get("/app/{number}")
def show_app_enrolment(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: FactorIdPath
) -> Response:
    """Show what the app must know, until it has shown a code."""
    return _render_app_page(request, parts, visitor, number)


@router.post("/app/{number}")
def finish_app_enrolment(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    number: FactorIdPath,
    form: FormValues,
) -> Response:
    try:
        parts.workflow.factor_enrolment.finish_app_enrolment(
            visitor.id, number, form.get("code", "")
        )
    except InvalidRequestError as unfit:
        return _render_app_page(request, parts, visitor, number, status=422, alert=str(unfit))
    return RedirectResponse("/second-factor?done=enrolled", 303)


@router.post("/key/options")
def begin_key_enrolment(parts: WebDeps, visitor: CurrentVisitor) -> Response:
    home = webauthn.build_relying_party(parts.base_url)
    if home is None:
        return JSONResponse({"why": KEYS_UNAVAILABLE}, 422)
    options = parts.workflow.factor_enrolment.begin_key_enrolment(
        visitor.id, visitor.session_token, home
    )
    return Response(options, media_type="application/json")


@router.post("/key")
def finish_key_enrolment(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    try:
        home = get_relying_party(parts)
        answer = form.get("credential", "")
        parts.workflow.factor_enrolment.finish_key_enrolment(
            visitor.id, visitor.session_token, home, answer
        )
    except InvalidRequestError as unfit:
        return _render_page(request, parts, visitor, status=422, alert=str(unfit))
    return RedirectResponse("/second-factor?done=enrolled", 303)


@router.post("/{number}/confirm")
def confirm_factor(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    number: FactorIdPath,
    form: FormValues,
) -> Response:
    try:
        parts.workflow.factor_enrolment.confirm_factor(
            visitor.id, visitor.session_token, number, form.get("digest", "")
        )
    except StepUpRequired:
        return RedirectResponse("/step-up?next=/second-factor", 303)
    except REFUSALS as no:
        return _render_page(
            request, parts, visitor, status=get_http_status(no), alert=_format_refusal(no)
        )
    return RedirectResponse("/second-factor?done=confirmed", 303)


@router.post("/{number}/remove")
def remove_factor(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: FactorIdPath
) -> Response:
    try:
        parts.workflow.factor_enrolment.remove_factor(visitor.id, number)
    except REFUSALS as no:
        return _render_page(
            request, parts, visitor, status=get_http_status(no), alert=_format_refusal(no)
        )
    return RedirectResponse("/second-factor?done=removed", 303)


KEYS_UNAVAILABLE = (
    "Browsers let security keys work only where the pages are reached by a name over HTTPS. An "
    "authenticator app works everywhere."
)


def get_relying_party(parts: WebDependencies) -> RelyingParty:
    """Return where keys of these pages belong. Raises Unfit where they belong to nothing."""
    home = webauthn.build_relying_party(parts.base_url)
    if home is None:
        raise InvalidRequestError(KEYS_UNAVAILABLE)
    return home


def _render_page(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        mine = [
            factor for factor in second_factors.list_factors(tx, visitor.id) if factor.verified_at
        ]
        others = (
            second_factors.list_verified_factors(tx)
            if is_area_owner(visitor.policy, visitor.id)
            else []
        )
        fresh = get_shown_factor(
            tx, visitor.policy, person=visitor.id, session=visitor.session_token
        )
    return render_page(
        request,
        "second_factor.html",
        status=status,
        alert=alert,
        notice=notice,
        mine=_build_shown_factors(visitor, mine),
        others=_build_shown_factors(
            visitor, [factor for factor in others if factor.person != visitor.id]
        ),
        owners=_list_confirmers(visitor),
        stepped_up=bool(fresh),
        keys=webauthn.build_relying_party(parts.base_url) is not None,
        no_keys=KEYS_UNAVAILABLE,
    )


def _render_app_page(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
) -> Response:
    try:
        secret = parts.workflow.factor_enrolment.get_app_secret(visitor.id, number)
    except InvalidRequestError as unfit:
        gone = 404 if status == 200 else status
        return render_page(
            request,
            "trouble.html",
            status=gone,
            title="There is no such app",
            words=_format_refusal(unfit),
            code=gone,
        )
    address = totp.build_provisioning_uri(
        secret, person=visitor.id, host=parts.origin.partition("//")[2]
    )
    return render_page(
        request,
        "second_factor_app.html",
        status=status,
        alert=alert,
        number=number,
        picture=totp.render_qr_code(address),
        address=address,
        secret=" ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
    )


def _build_shown_factors(visitor: Visitor, factors: Sequence[SecondFactor]) -> list[ShownFactor]:
    return [ShownFactor(factor, is_factor_valid(visitor.policy, factor)) for factor in factors]


def _list_confirmers(visitor: Visitor) -> list[str]:
    """Return who could confirm a factor of the visitor's, by name."""
    people = visitor.policy.organisation.people.values()
    able = [p.name for p in people if p.id != visitor.id and is_area_owner(visitor.policy, p.id)]
    return sorted(able)


def _format_refusal(refusal: Exception) -> str:
    text = str(refusal)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
