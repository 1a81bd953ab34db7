"""Access page: delegations and standing grants that the user gave or received."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import delegations, grants
from bot.model import grant_words
from bot.model.grant_words import NewGrant
from bot.model.request_form import RequestSyntaxError
from bot.model.times import InvalidTimeError, parse_deadline
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page, start_sentence

router = APIRouter(prefix="/access")

RecordIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]
# Parses a field from its text, the current time in microseconds, and the reader's time zone.
_FieldParser = Callable[[str, int, str], Any]
_DONE_NOTICES: Mapping[str, str] = {
    "delegated": "The delegation is active. Each decision is recorded as made on your behalf.",
    "granted": "The standing grant is active. Each use is counted and logged.",
    "ended": "Ended.",
}


@router.get("")
def show_access(request: Request, deps: WebDeps, user: CurrentUser, done: str = "") -> Response:
    """Show the active delegations and standing grants of the user."""
    return _render_page(request, deps, user, notice=_DONE_NOTICES.get(done, ""))


@router.post("/delegations")
def create_delegation(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    def act(now: int) -> None:
        parsed = _parse_fields(form, now, _DELEGATION_PARSERS)
        deps.service.delegations_and_grants.create_delegation(
            delegator=user.id,
            delegate=parsed["person"],
            ends_at=parsed["until"],
            area=form.get("area", ""),
            reason=form.get("reason", ""),
            source="web",
        )

    return _perform_and_redirect(request, deps, user, act, "delegated", form)


@router.post("/grants")
def create_grant(request: Request, deps: WebDeps, user: CurrentUser, form: FormValues) -> Response:
    def act(now: int) -> None:
        parsed = _parse_fields(form, now, _GRANT_PARSERS)
        runbook, hosts, values = parsed["what"]
        grant = NewGrant(
            person=parsed["person"],
            runbook=runbook,
            hosts=hosts,
            values=values,
            per_hour=parsed["per_hour"],
            ends_at=parsed["until"],
        )
        reason = form.get("reason", "")
        deps.service.delegations_and_grants.create_grant(
            grant, granted_by=user.id, reason=reason, source="web"
        )

    return _perform_and_redirect(request, deps, user, act, "granted", form)


@router.post("/delegations/{number}/end")
def end_delegation(
    request: Request, deps: WebDeps, user: CurrentUser, number: RecordIdPath
) -> Response:
    def act(_now: int) -> None:
        deps.service.delegations_and_grants.end_delegation(number, person=user.id, source="web")

    return _perform_and_redirect(request, deps, user, act, "ended", {})


@router.post("/grants/{number}/end")
def revoke_grant(
    request: Request, deps: WebDeps, user: CurrentUser, number: RecordIdPath
) -> Response:
    def act(_now: int) -> None:
        deps.service.delegations_and_grants.revoke_grant(number, person=user.id, source="web")

    return _perform_and_redirect(request, deps, user, act, "ended", {})


class _InvalidFormError(RequestSyntaxError):
    """Fields of a form are invalid. problems: by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("Fix the marked fields.")
        self.problems = problems


def _parse_fields(
    form: Mapping[str, str], now: int, parsers: Mapping[str, _FieldParser]
) -> dict[str, Any]:
    """Return the parsed fields. Raises _InvalidFormError with the problems of all of them."""
    parsed: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, parse in parsers.items():
        try:
            parsed[name] = parse(form.get(name, "").strip(), now, form.get("zone") or "UTC")
        except (RequestSyntaxError, InvalidTimeError) as error:
            problems[name] = str(error)
    if problems:
        raise _InvalidFormError(problems)
    return parsed


def _parse_person(text: str, _now: int, _zone: str) -> str:
    if not text:
        raise RequestSyntaxError("choose a person")
    return text


def _parse_until(text: str, now: int, zone: str) -> int:
    return parse_deadline(text, now=now, zone=zone)


def _parse_per_hour(text: str, _now: int, _zone: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise RequestSyntaxError("type a whole number")
    return int(text)


def _parse_granted_request(text: str, _now: int, _zone: str) -> tuple[str, str, dict[str, str]]:
    return grant_words.parse_granted_request(text)


_DELEGATION_PARSERS: Mapping[str, _FieldParser] = {"person": _parse_person, "until": _parse_until}
_GRANT_PARSERS: Mapping[str, _FieldParser] = {
    "person": _parse_person,
    "what": _parse_granted_request,
    "per_hour": _parse_per_hour,
    "until": _parse_until,
}


def _perform_and_redirect(
    request: Request,
    deps: WebDependencies,
    user: User,
    action: Callable[[int], None],
    outcome: str,
    typed: Mapping[str, str],
) -> Response:
    """Run *action* and redirect to the page, or render the page again with the error."""
    with deps.database.reading(user.view_rights) as tx:
        now = tx.now
    try:
        action(now)
    except REFUSALS as error:
        return _render_page(
            request, deps, user, status=get_http_status(error), refusal=error, typed=typed
        )
    return RedirectResponse(f"/access?done={outcome}", 303)


def _render_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    *,
    status: int = 200,
    refusal: Exception | None = None,
    notice: str = "",
    typed: Mapping[str, str] | None = None,
) -> Response:
    policy = user.policy
    owned = [area for area in policy.organisation.areas.values() if user.id in area.owners]
    with deps.database.reading(user.view_rights) as tx:
        active_grants = [one for one in grants.list_grants_of(tx, user.id) if one.holds(tx.now)]
        return render_page(
            request,
            "access.html",
            status=status,
            alert=start_sentence(str(refusal or "")),
            problems=refusal.problems if isinstance(refusal, _InvalidFormError) else {},
            notice=notice,
            typed=typed or {},
            owned=owned,
            people=sorted(
                (one for one in policy.organisation.people.values() if one.id != user.id),
                key=lambda one: one.name,
            ),
            delegations=[
                one
                for one in delegations.list_delegations_of(tx, user.id)
                if one.holds(area=one.area, now=tx.now)
            ],
            grants=[(one, grants.count_uses_left(tx, one)) for one in active_grants],
            now=tx.now,
        )
