"""Second factor page: enrol an app or a key, and confirm those of other people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from bot.auth import second_factors, totp, webauthn
from bot.auth.second_factors import SecondFactor
from bot.auth.webauthn import RelyingParty
from bot.model.errors import InvalidRequestError, StepUpRequired
from bot.queries.second_factor import get_shown_factor, is_area_owner, is_factor_valid
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page

router = APIRouter(prefix="/second-factor")

FactorIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]

_DONE_NOTICES: Mapping[str, str] = {
    "enrolled": "Enrolled. It becomes active when an owner confirms it: see below.",
    "confirmed": "Confirmed. It is active now.",
    "removed": "The second factor is removed.",
}


@dataclass(frozen=True)
class ShownFactor:
    """A second factor as the page shows it."""

    factor: SecondFactor
    is_valid: bool

    @property
    def kind_label(self) -> str:
        return "Authenticator app" if self.factor.kind == totp.TOTP_KIND else "Security key"

    @property
    def grouped_digest(self) -> str:
        """The digest in groups of four digits, for reading aloud."""
        digest = self.factor.digest
        return " ".join(digest[at : at + 4] for at in range(0, len(digest), 4))


@router.get("")
def show_factors(request: Request, deps: WebDeps, user: CurrentUser, done: str = "") -> Response:
    return _render_page(request, deps, user, notice=_DONE_NOTICES.get(done, ""))


@router.post("/app")
def begin_app_enrolment(deps: WebDeps, user: CurrentUser) -> Response:
    try:
        factor = deps.service.factor_enrolment.begin_app_enrolment(user.id)
    except InvalidRequestError:
        return RedirectResponse("/second-factor", 303)
    return RedirectResponse(f"/second-factor/app/{factor.id}", 303)


@router.get("/app/{number}")
def show_app_enrolment(
    request: Request, deps: WebDeps, user: CurrentUser, number: FactorIdPath
) -> Response:
    """Show the secret for the app, until a code has been entered."""
    return _render_app_page(request, deps, user, number)


@router.post("/app/{number}")
def finish_app_enrolment(
    request: Request,
    deps: WebDeps,
    user: CurrentUser,
    number: FactorIdPath,
    form: FormValues,
) -> Response:
    try:
        deps.service.factor_enrolment.finish_app_enrolment(user.id, number, form.get("code", ""))
    except InvalidRequestError as error:
        return _render_app_page(request, deps, user, number, status=422, alert=str(error))
    return RedirectResponse("/second-factor?done=enrolled", 303)


@router.post("/key/options")
def begin_key_enrolment(deps: WebDeps, user: CurrentUser) -> Response:
    relying_party = webauthn.build_relying_party(deps.base_url)
    if relying_party is None:
        return JSONResponse({"error": KEYS_UNAVAILABLE}, 422)
    options = deps.service.factor_enrolment.begin_key_enrolment(
        user.id, user.session_token, relying_party
    )
    return Response(options, media_type="application/json")


@router.post("/key")
def finish_key_enrolment(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    try:
        relying_party = get_relying_party(deps)
        credential = form.get("credential", "")
        deps.service.factor_enrolment.finish_key_enrolment(
            user.id, user.session_token, relying_party, credential
        )
    except InvalidRequestError as error:
        return _render_page(request, deps, user, status=422, alert=str(error))
    return RedirectResponse("/second-factor?done=enrolled", 303)


@router.post("/{number}/confirm")
def confirm_factor(
    request: Request,
    deps: WebDeps,
    user: CurrentUser,
    number: FactorIdPath,
    form: FormValues,
) -> Response:
    try:
        deps.service.factor_enrolment.confirm_factor(
            user.id, user.session_token, number, form.get("digest", "")
        )
    except StepUpRequired:
        return RedirectResponse("/step-up?next=/second-factor", 303)
    except REFUSALS as error:
        return _render_page(
            request, deps, user, status=get_http_status(error), alert=_format_refusal(error)
        )
    return RedirectResponse("/second-factor?done=confirmed", 303)


@router.post("/{number}/remove")
def remove_factor(
    request: Request, deps: WebDeps, user: CurrentUser, number: FactorIdPath
) -> Response:
    try:
        deps.service.factor_enrolment.remove_factor(user.id, number)
    except REFUSALS as error:
        return _render_page(
            request, deps, user, status=get_http_status(error), alert=_format_refusal(error)
        )
    return RedirectResponse("/second-factor?done=removed", 303)


KEYS_UNAVAILABLE = (
    "Browsers support security keys only on pages reached by host name over HTTPS. Use an "
    "authenticator app instead."
)


def get_relying_party(deps: WebDependencies) -> RelyingParty:
    """Return the relying party of security keys.

    Raises:
        InvalidRequestError: Browsers do not support security keys at this address.
    """
    relying_party = webauthn.build_relying_party(deps.base_url)
    if relying_party is None:
        raise InvalidRequestError(KEYS_UNAVAILABLE)
    return relying_party


def _render_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
) -> Response:
    with deps.database.reading(user.view_rights) as tx:
        mine = [
            factor for factor in second_factors.list_factors(tx, user.id) if factor.verified_at
        ]
        others = (
            second_factors.list_verified_factors(tx) if is_area_owner(user.policy, user.id) else []
        )
        shown_factor = get_shown_factor(
            tx, user.policy, person=user.id, session=user.session_token
        )
    return render_page(
        request,
        "second_factor.html",
        status=status,
        alert=alert,
        notice=notice,
        mine=_build_shown_factors(user, mine),
        others=_build_shown_factors(
            user, [factor for factor in others if factor.person != user.id]
        ),
        owners=_list_confirmers(user),
        stepped_up=bool(shown_factor),
        are_keys_available=webauthn.build_relying_party(deps.base_url) is not None,
        keys_unavailable=KEYS_UNAVAILABLE,
    )


def _render_app_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
) -> Response:
    try:
        secret = deps.service.factor_enrolment.get_app_secret(user.id, number)
    except InvalidRequestError as error:
        status = 404 if status == 200 else status
        return render_page(
            request,
            "error.html",
            status=status,
            title="Authenticator app not found",
            message=_format_refusal(error),
            code=status,
        )
    address = totp.build_provisioning_uri(
        secret, person=user.id, host=deps.origin.partition("//")[2]
    )
    return render_page(
        request,
        "second_factor_app.html",
        status=status,
        alert=alert,
        number=number,
        qr_code=totp.render_qr_code(address),
        address=address,
        secret=" ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
    )


def _build_shown_factors(user: User, factors: Sequence[SecondFactor]) -> list[ShownFactor]:
    return [ShownFactor(factor, is_factor_valid(user.policy, factor)) for factor in factors]


def _list_confirmers(user: User) -> list[str]:
    """Return the names of the people who can confirm a factor of the user."""
    people = user.policy.organisation.people.values()
    names = [p.name for p in people if p.id != user.id and is_area_owner(user.policy, p.id)]
    return sorted(names)


def _format_refusal(refusal: Exception) -> str:
    text = str(refusal)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
