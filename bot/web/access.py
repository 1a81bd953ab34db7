"""Access page: delegations and standing grants that the user gave or received."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from bot.db import delegations, grants
from bot.model import grant_words
from bot.model.grant_words import NewGrant
from bot.model.request_form import RequestSyntaxError
from bot.model.times import InvalidTimeError, parse_deadline
from bot.web.visit import IdPath, Visit, VisitOfPage, add_action
from connectors.errors import DomainError

router = APIRouter(prefix="/access")

_FieldParser = Callable[[str], Any]
_DONE_NOTICES: Mapping[str, str] = {
    "delegated": "The delegation is active. Each decision is recorded as made on your behalf.",
    "granted": "The standing grant is active. Each use is counted and logged.",
    "ended": "Ended.",
}


class _InvalidFormError(RequestSyntaxError):
    """Fields of a form are invalid. problems: by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("Fix the marked fields.")
        self.problems = problems


def _parse_fields(visit: VisitOfPage, parsers: Mapping[str, _FieldParser]) -> dict[str, Any]:
    """Return the person, the end and more fields.

    Raises _InvalidFormError with the problems of all of them.
    """
    form = visit.form
    with visit.read_viewable() as tx:
        parse_until = partial(parse_deadline, now=tx.now, zone=form.get("zone") or "UTC")
    parsers = {"person": _parse_person, "until": parse_until, **parsers}
    parsed: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, parse in parsers.items():
        try:
            parsed[name] = parse(form.get(name, "").strip())
        except (RequestSyntaxError, InvalidTimeError) as error:
            problems[name] = str(error)
    if problems:
        raise _InvalidFormError(problems)
    return parsed


def _parse_person(text: str) -> str:
    if not text:
        raise RequestSyntaxError("choose a person")
    return text


def _parse_per_hour(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise RequestSyntaxError("type a whole number")
    return int(text)


_GRANT_PARSERS: Mapping[str, _FieldParser] = {
    "what": grant_words.parse_granted_request,
    "per_hour": _parse_per_hour,
}


@router.get("")
def show_access(visit: Visit) -> Response:
    """Show the active delegations and standing grants of the user."""
    return _render_page(visit)


def _render_page(
    visit: VisitOfPage, *, refusal: DomainError | None = None, **_record: int
) -> Response:
    organisation, person = visit.policy.organisation, visit.person
    with visit.read_viewable() as tx:
        return visit.render(
            "access.html",
            refusal=refusal,
            problems=refusal.problems if isinstance(refusal, _InvalidFormError) else {},
            notice=_DONE_NOTICES.get(visit.done, ""),
            typed=visit.form,
            owned=[area for area in organisation.areas.values() if person in area.owners],
            people=sorted(
                (one for one in organisation.people.values() if one.id != person),
                key=lambda one: one.name,
            ),
            delegations=delegations.list_active_delegations_of(tx, person),
            grants=[
                (one, grants.count_uses_left(tx, one))
                for one in grants.list_newest_active_grants(tx, person)
            ],
            now=tx.now,
        )


_action = partial(add_action, router, page="/access", render=_render_page)


@_action("/delegations")
def create_delegation(visit: Visit) -> str:
    parsed = _parse_fields(visit, {})
    visit.service.delegations.create_delegation(
        delegator=visit.person,
        delegate=parsed["person"],
        ends_at=parsed["until"],
        area=visit.form.get("area", ""),
        reason=visit.reason,
        source="web",
    )
    return "/access?done=delegated"


@_action("/grants")
def create_grant(visit: Visit) -> str:
    parsed = _parse_fields(visit, _GRANT_PARSERS)
    runbook, hosts, values = parsed["what"]
    grant = NewGrant(
        person=parsed["person"],
        runbook=runbook,
        hosts=hosts,
        values=values,
        per_hour=parsed["per_hour"],
        ends_at=parsed["until"],
    )
    visit.service.grants.create_grant(
        grant, granted_by=visit.person, reason=visit.reason, source="web"
    )
    return "/access?done=granted"


@_action("/delegations/{number}/end")
def end_delegation(visit: Visit, number: IdPath) -> str:
    visit.service.delegations.end_delegation(number, person=visit.person, source="web")
    return "/access?done=ended"


@_action("/grants/{number}/end")
def revoke_grant(visit: Visit, number: IdPath) -> str:
    visit.service.grants.revoke_grant(number, person=visit.person, source="web")
    return "/access?done=ended"
