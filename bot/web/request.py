"""Asking on the web: the runbooks, and a form for each from its fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse

from bot.model import request_form
from bot.model.request_form import FormField, InvalidValues
from bot.model.run import Origin, Run
from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.policy.explain import PreviewQuestion
from bot.web.auth import Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.refusals import NOES, status_of
from bot.web.templating import page
from bot.workflow.form_options import list_requestable_hosts
from bot.workflow.preview import preview_request
from runbooks import AnyRunbook, load_catalogue

router = APIRouter(prefix="/ask")

_FIELD = "field-"

Words = Annotated[str, Query(max_length=100)]
Host = Annotated[str, Query(max_length=64)]
FieldHost = Annotated[str, Query(alias=f"{_FIELD}host", max_length=64)]


@dataclass(frozen=True)
class Field:
    """One blank of the form. offered: what may be chosen; other words may be typed too.

    problem: what is wrong with the value, "" if nothing is.
    """

    blank: FormField
    value: str
    offered: Sequence[str]
    problem: str


@dataclass(frozen=True)
class _Sheet:
    """What was typed into a form. problems: by field; alert: what is wrong with all of it."""

    values: Mapping[str, str]
    reason: str = ""
    problems: Mapping[str, str] = dataclass_field(default_factory=dict[str, str])
    alert: str = ""
    status: int = 200


@router.get("")
def listing(request: Request, visitor: Visiting, host: Host = "", text: Words = "") -> Response:
    """Show the runbooks by what they are about; of a host, those that are meant for it.

    text: words that all occur in how it is typed or what it does, or parts of them.
    """
    known = visitor.policy.inventory.hosts.get(host)
    found = list_runbook_info()
    if known is not None:
        found = [one for one in found if not one.tag or one.tag in known.tags]
    sought = text.casefold().split()
    found = [
        one for one in found if all(w in f"{one.words} {one.summary}".casefold() for w in sought)
    ]
    groups: dict[str, list[RunbookInfo]] = {}
    for one in found:
        groups.setdefault(one.words.split()[0], []).append(one)
    named = known.name if known else ""
    return page(request, "ask.html", groups=groups, host=named, text=text, count=len(found))


@router.get("/form")
def form(
    request: Request, parts: Here, visitor: Visiting, runbook: Words = "", host: Host = ""
) -> Response:
    """Show the form of a runbook. What stands in the address is filled in."""
    known = _runbook(runbook)
    typed = {name: request.query_params.get(name, "")[:300] for name in known.model_fields}
    values = typed | ({"host": host} if host else {})
    return _form(request, parts, visitor, known, _Sheet(values))


@router.get("/lists")
def lists(
    request: Request, parts: Here, visitor: Visiting, runbook: Words = "", host: FieldHost = ""
) -> Response:
    """Answer with what the chosen host lists for the fields: it is asked, as its checks are."""
    known = _runbook(runbook)
    query = request.query_params
    typed = {name: query.get(f"{_FIELD}{name}", "").strip()[:300] for name in known.model_fields}
    typed |= {"host": host}
    if parts.offering is not None and host in visitor.policy.inventory.hosts:
        parts.offering.look(known, host=host, person=visitor.id, door="web", given=typed)
    fields = _fields(parts, visitor, known, typed, {})
    return page(request, "ask_lists.html", fields=fields)


@router.post("")
def ask(request: Request, parts: Here, visitor: Visiting, filled: Filled) -> Response:
    """Ask for it, and go to the run; or show what was typed, with what does not fit beside it."""
    known = _runbook(filled.get("runbook", ""))
    typed = {name: filled.get(f"{_FIELD}{name}", "").strip() for name in known.model_fields}
    reason = filled.get("reason", "")
    try:
        run = _asked(parts, visitor, known, typed, reason)
    except InvalidValues as misfit:
        sheet = _Sheet(typed, reason, problems=misfit.problems, status=422)
        return _form(request, parts, visitor, known, sheet)
    except NOES as no:
        sheet = _Sheet(typed, reason, alert=str(no), status=status_of(no))
        return _form(request, parts, visitor, known, sheet)
    return RedirectResponse(f"/runs/{run.id}", 303)


def _runbook(words: str) -> type[AnyRunbook]:
    known = load_catalogue().get(" ".join(words.lower().split()))
    if known is None:
        raise HTTPException(404, "There is no such runbook: choose one from the list.")
    return known


def _asked(
    parts: WebParts,
    visitor: Visitor,
    runbook: type[AnyRunbook],
    typed: Mapping[str, str],
    reason: str,
) -> Run:
    """Record the request. Raises NotUnderstood, and what the workflow refuses."""
    words = [f"{name}={value}" for name, value in typed.items() if value]
    spelled, requests = request_form.parse_for_hosts(runbook, words, visitor.policy.inventory.tags)
    origin = Origin("web", user=visitor.id)
    flow = parts.workflow
    if spelled:
        return flow.ask_all(
            requests, spelled=spelled, person=visitor.id, origin=origin, reason=reason
        )
    return flow.ask(requests[0], person=visitor.id, origin=origin, reason=reason)


def _form(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    runbook: type[AnyRunbook],
    sheet: _Sheet,
) -> Response:
    fields = _fields(parts, visitor, runbook, sheet.values, sheet.problems)
    known = {field.blank.name for field in fields}
    return page(
        request,
        "ask_form.html",
        status=sheet.status,
        leaflet=next(
            one for one in list_runbook_info(runbook.words) if one.words == runbook.words
        ),
        fields=fields,
        reason=sheet.reason,
        # What is wrong with no field of the form still is to be said.
        alerts=[sheet.alert, *(sheet.problems[name] for name in set(sheet.problems) - known)],
        outlook=_outlook(parts, visitor, runbook, sheet.values.get("host", "")),
        # The fields that say where the lists come from: they are read again when one changes.
        reads=["host", *(name for field in fields for name in field.blank.within)]
        if parts.offering is not None and any(field.blank.lists for field in fields)
        else [],
    )


def _fields(
    parts: WebParts,
    visitor: Visitor,
    runbook: type[AnyRunbook],
    typed: Mapping[str, str],
    problems: Mapping[str, str],
) -> list[Field]:
    return [
        Field(
            blank,
            typed.get(blank.name) or blank.default,
            _offered(parts, visitor, runbook, blank, typed),
            problems.get(blank.name, ""),
        )
        for blank in request_form.list_form_fields(runbook)
    ]


def _offered(
    parts: WebParts,
    visitor: Visitor,
    runbook: type[AnyRunbook],
    blank: FormField,
    typed: Mapping[str, str],
) -> Sequence[str]:
    host = typed.get("host", "")
    if blank.kind == "host":
        with parts.database.reading(visitor.sight) as tx:
            now = tx.now
        return list(
            list_requestable_hosts(visitor.policy, runbook, person=visitor.id, door="web", now=now)
        )
    if blank.choices or parts.offering is None or host not in visitor.policy.inventory.hosts:
        return ()
    return parts.offering.values(
        runbook, blank, host=host, person=visitor.id, door="web", given=typed
    )


def _outlook(
    parts: WebParts, visitor: Visitor, runbook: type[AnyRunbook], host: str
) -> Sequence[str]:
    """Say what would come of it on this host; nothing as long as none is chosen."""
    if host not in visitor.policy.inventory.hosts:
        return ()
    with parts.database.reading(visitor.sight) as tx:
        meant = PreviewQuestion(runbook, (host,))
        seen = preview_request(tx, visitor.policy, meant, person=visitor.id, door="web")
    return seen.sentences()
