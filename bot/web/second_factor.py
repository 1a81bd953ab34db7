"""Second factors: their page, and the step-up page that asks for one before an action."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, RedirectResponse

from bot.auth import second_factors, totp, webauthn
from bot.auth.second_factors import SecondFactor
from bot.auth.webauthn import RelyingParty
from bot.model.errors import InvalidRequestError
from bot.model.text import format_sentence
from bot.policy.matrix import build_current_matrix
from bot.queries.second_factor import is_area_owner, is_factor_valid
from bot.signing.page import build_key_address
from bot.web.auth import User
from bot.web.deps import WebDependencies
from bot.web.redirects import TargetPageQuery, get_safe_page
from bot.web.visit import IdPath, Visit, VisitOfPage, add_action
from connectors.errors import DomainError

router = APIRouter()


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


KEYS_UNAVAILABLE = (
    "Browsers support security keys only on pages reached by host name over HTTPS. Use an "
    "authenticator app instead."
)


def respond_with_key_options(
    deps: WebDependencies, create_options: Callable[[RelyingParty], str]
) -> Response:
    """Return what the browser needs to ask for a security key, or the refusal, as JSON."""
    try:
        options = create_options(get_relying_party(deps))
    except DomainError as error:
        return JSONResponse({"error": format_sentence(str(error))}, error.status)
    return Response(options, media_type="application/json")


def get_relying_party(deps: WebDependencies) -> RelyingParty:
    """Return the relying party of security keys.

    Raises:
        InvalidRequestError: Browsers do not support security keys at this address.
    """
    relying_party = webauthn.build_relying_party(deps.base_url)
    if relying_party is None:
        raise InvalidRequestError(KEYS_UNAVAILABLE)
    return relying_party


def get_key_address(visit: VisitOfPage) -> str:
    """Return where the visitor makes a passkey that signs plans."""
    return build_key_address(
        visit.deps.signing_page,
        person=visit.person,
        needs_verified_user=visit.policy.organisation.verify_user,
    )


@router.get("/second-factor")
def show_factors(visit: Visit) -> Response:
    return _render_page(visit)


def _render_page(
    visit: VisitOfPage, *, refusal: DomainError | None = None, **_factor: int
) -> Response:
    is_owner = is_area_owner(visit.policy, visit.person)
    with visit.read_viewable() as tx:
        mine = [one for one in second_factors.list_factors(tx, visit.person) if one.verified_at]
        others = second_factors.list_verified_factors(tx) if is_owner else []
        stepped_up = visit.is_stepped_up(tx)
        matrix = build_current_matrix(visit.policy, tx.now, person=visit.person)
    return visit.render(
        "second_factor.html",
        refusal=refusal,
        notice=_DONE_NOTICES.get(visit.done, ""),
        mine=_build_shown_factors(visit.user, mine),
        others=_build_shown_factors(
            visit.user, [factor for factor in others if factor.person != visit.person]
        ),
        owners=_list_confirmers(visit.user),
        stepped_up=stepped_up,
        are_keys_available=webauthn.build_relying_party(visit.deps.base_url) is not None,
        keys_unavailable=KEYS_UNAVAILABLE,
        signer=next(iter(matrix.signers), None),
        make=get_key_address(visit),
    )


def _render_app_page(
    visit: VisitOfPage, number: int, *, refusal: DomainError | None = None
) -> Response:
    try:
        secret = visit.service.factor_enrolment.get_app_secret(visit.person, number)
    except InvalidRequestError as error:
        status = refusal.status if refusal else 404
        return visit.render(
            "error.html",
            status=status,
            title="Authenticator app not found",
            message=format_sentence(str(error)),
            code=status,
        )
    address = totp.build_provisioning_uri(
        secret, person=visit.person, host=visit.deps.origin.partition("//")[2]
    )
    return visit.render(
        "second_factor_app.html",
        refusal=refusal,
        number=number,
        qr_code=totp.render_qr_code(address),
        address=address,
        secret=" ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
    )


_action = partial(add_action, router, page="/second-factor", render=_render_page)


@router.post("/second-factor/app")
def begin_app_enrolment(visit: Visit) -> Response:
    try:
        factor = visit.service.factor_enrolment.begin_app_enrolment(visit.person)
    except InvalidRequestError:
        return RedirectResponse("/second-factor", 303)
    return RedirectResponse(f"/second-factor/app/{factor.id}", 303)


@router.get("/second-factor/app/{number}")
def show_app_enrolment(visit: Visit, number: IdPath) -> Response:
    """Show the secret for the app, until a code has been entered."""
    return _render_app_page(visit, number)


@add_action(router, "/second-factor/app/{number}", page="/second-factor", render=_render_app_page)
def finish_app_enrolment(visit: Visit, number: IdPath) -> str:
    code = visit.form.get("code", "")
    visit.service.factor_enrolment.finish_app_enrolment(visit.person, number, code)
    return "/second-factor?done=enrolled"


@router.post("/second-factor/key/options")
def begin_key_enrolment(visit: Visit) -> Response:
    begin = visit.service.factor_enrolment.begin_key_enrolment
    return respond_with_key_options(visit.deps, partial(begin, visit.person, visit.session))


@_action("/second-factor/key")
def finish_key_enrolment(visit: Visit) -> str:
    credential = visit.form.get("credential", "")
    visit.service.factor_enrolment.finish_key_enrolment(
        visit.person, visit.session, get_relying_party(visit.deps), credential
    )
    return "/second-factor?done=enrolled"


@_action("/second-factor/{number}/confirm")
def confirm_factor(visit: Visit, number: IdPath) -> str:
    digest = visit.form.get("digest", "")
    visit.service.factor_enrolment.confirm_factor(visit.person, visit.session, number, digest)
    return "/second-factor?done=confirmed"


@_action("/second-factor/{number}/remove")
def remove_factor(visit: Visit, number: IdPath) -> str:
    visit.service.factor_enrolment.remove_factor(visit.person, number)
    return "/second-factor?done=removed"


def _build_shown_factors(user: User, factors: Sequence[SecondFactor]) -> list[ShownFactor]:
    return [ShownFactor(factor, is_factor_valid(user.policy, factor)) for factor in factors]


def _list_confirmers(user: User) -> list[str]:
    """Return the names of the people who can confirm a factor of the user."""
    people = user.policy.organisation.people.values()
    names = [p.name for p in people if p.id != user.id and is_area_owner(user.policy, p.id)]
    return sorted(names)


@router.get("/step-up")
def show_step_up(visit: Visit, target_page: TargetPageQuery = "/") -> Response:
    return _render_step_up(visit, target_page=target_page)


def _render_step_up(
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


_step_up = partial(add_action, router, page="/", render=_render_step_up)


@_step_up("/step-up/code")
def step_up_by_code(visit: Visit) -> str:
    visit.service.step_up.step_up_by_code(visit.person, visit.session, visit.form.get("code", ""))
    return get_safe_page(visit.form.get("next", "/"), visit.deps)


@router.post("/step-up/options")
def create_key_challenge(visit: Visit) -> Response:
    """Return the challenge for a security key."""
    create = visit.service.step_up.create_key_challenge
    return respond_with_key_options(visit.deps, partial(create, visit.person, visit.session))


@_step_up("/step-up/key")
def step_up_by_key(visit: Visit) -> str:
    credential = visit.form.get("credential", "")
    visit.service.step_up.step_up_by_key(
        visit.person, visit.session, get_relying_party(visit.deps), credential
    )
    return get_safe_page(visit.form.get("next", "/"), visit.deps)
