"""Asking on the web: the runbooks, and a form for each from its fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse

from bot.model import request_form
from bot.model.request_form import FormField, InvalidValuesError
from bot.model.run import RequestOrigin, Run
from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.policy.explain import PreviewQuestion
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page
from bot.workflow.form_options import list_requestable_hosts
from bot.workflow.preview import preview_request
from runbooks import AnyRunbook, load_catalogue

router = APIRouter(prefix="/ask")

_FIELD_PREFIX = "field-"

TextQuery = Annotated[str, Query(max_length=100)]
HostQuery = Annotated[str, Query(max_length=64)]
FieldHostQuery = Annotated[str, Query(alias=f"{_FIELD_PREFIX}host", max_length=64)]


@dataclass(frozen=True)
class ShownField:
    """One blank of the form. offered: what may be chosen; other words may be typed too.

    problem: what is wrong with the value, "" if nothing is.
    """

    form_field: FormField
    value: str
    options: Sequence[str]
    problem: str


@dataclass(frozen=True)
class _TypedForm:
    """What was typed into a form. problems: by field; alert: what is wrong with all of it."""

    values: Mapping[str, str]
    reason: str = ""
    problems: Mapping[str, str] = dataclass_field(default_factory=dict[str, str])
    alert: str = ""
    status: int = 200


@router.get("")
def list_runbooks_page(
    request: Request, visitor: CurrentVisitor, host: HostQuery = "", text: TextQuery = ""
) -> Response:
    """Show the runbooks by what they are about; of a host, those that are meant for it.

    text: words that all occur in how it is typed or what it does, or parts of them.
    """
    known = visitor.policy.inventory.hosts.get(host)
    found = list_runbook_info()
    if known is not None:
        found = [one for one in found if not one.tag or one.tag in known.tags]
    sought = text.casefold().split()
    found = [
        one for one in found if all(w in f"{one.name} {one.summary}".casefold() for w in sought)
    ]
    groups: dict[str, list[RunbookInfo]] = {}
    for one in found:
        groups.setdefault(one.name.split()[0], []).append(one)
    named = known.name if known else ""
    return render_page(request, "ask.html", groups=groups, host=named, text=text, count=len(found))


@router.get("/form")
def show_form(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    runbook: TextQuery = "",
    host: HostQuery = "",
) -> Response:
    """Show the form of a runbook. What stands in the address is filled in."""
    known = _get_runbook(runbook)
    typed = {name: request.query_params.get(name, "")[:300] for name in known.model_fields}
    values = typed | ({"host": host} if host else {})
    return _render_form(request, parts, visitor, known, _TypedForm(values))


@router.get("/lists")
def list_field_options(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    runbook: TextQuery = "",
    host: FieldHostQuery = "",
) -> Response:
    """Answer with what the chosen host lists for the fields: it is asked, as its checks are."""
    known = _get_runbook(runbook)
    query = request.query_params
    typed = {
        name: query.get(f"{_FIELD_PREFIX}{name}", "").strip()[:300] for name in known.model_fields
    }
    typed |= {"host": host}
    if parts.form_options is not None and host in visitor.policy.inventory.hosts:
        parts.form_options.read_options(
            known, host=host, person=visitor.id, source="web", form_values=typed
        )
    fields = _build_fields(parts, visitor, known, typed, {})
    return render_page(request, "ask_lists.html", fields=fields)


@router.post("")
def request_run(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, filled: FormValues
) -> Response:
    """Ask for it, and go to the run; or show what was typed, with what does not fit beside it."""
    known = _get_runbook(filled.get("runbook", ""))
    typed = {name: filled.get(f"{_FIELD_PREFIX}{name}", "").strip() for name in known.model_fields}
    reason = filled.get("reason", "")
    try:
        run = _request_run(parts, visitor, known, typed, reason)
    except InvalidValuesError as misfit:
        sheet = _TypedForm(typed, reason, problems=misfit.problems, status=422)
        return _render_form(request, parts, visitor, known, sheet)
    except REFUSALS as no:
        sheet = _TypedForm(typed, reason, alert=str(no), status=get_http_status(no))
        return _render_form(request, parts, visitor, known, sheet)
    return RedirectResponse(f"/runs/{run.id}", 303)


def _get_runbook(name: str) -> type[AnyRunbook]:
    known = load_catalogue().get(" ".join(name.lower().split()))
    if known is None:
        raise HTTPException(404, "There is no such runbook: choose one from the list.")
    return known


def _request_run(
    parts: WebDependencies,
    visitor: Visitor,
    runbook: type[AnyRunbook],
    typed: Mapping[str, str],
    reason: str,
) -> Run:
    """Record the request. Raises NotUnderstood, and what the workflow refuses."""
    words = [f"{name}={value}" for name, value in typed.items() if value]
    spelled, requests = request_form.parse_request_for_hosts(
        runbook, words, visitor.policy.inventory.tags
    )
    origin = RequestOrigin("web", user=visitor.id)
    flow = parts.workflow
    if spelled:
        return flow.request_fanout_run(
            requests, host_pattern=spelled, person=visitor.id, origin=origin, reason=reason
        )
    return flow.request_run(requests[0], person=visitor.id, origin=origin, reason=reason)


def _render_form(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    runbook: type[AnyRunbook],
    typed_form: _TypedForm,
) -> Response:
    fields = _build_fields(parts, visitor, runbook, typed_form.values, typed_form.problems)
    known = {field.form_field.name for field in fields}
    return render_page(
        request,
        "ask_form.html",
        status=typed_form.status,
        leaflet=next(one for one in list_runbook_info(runbook.words) if one.name == runbook.words),
        fields=fields,
        reason=typed_form.reason,
        # What is wrong with no field of the form still is to be said.
        alerts=[
            typed_form.alert,
            *(typed_form.problems[name] for name in set(typed_form.problems) - known),
        ],
        outlook=_preview_request(parts, visitor, runbook, typed_form.values.get("host", "")),
        # The fields that say where the lists come from: they are read again when one changes.
        reads=["host", *(name for field in fields for name in field.form_field.within)]
        if parts.form_options is not None and any(field.form_field.lists for field in fields)
        else [],
    )


def _build_fields(
    parts: WebDependencies,
    visitor: Visitor,
    runbook: type[AnyRunbook],
    typed: Mapping[str, str],
    problems: Mapping[str, str],
) -> list[ShownField]:
    return [
        ShownField(
            blank,
            typed.get(blank.name) or blank.default,
            _list_options(parts, visitor, runbook, blank, typed),
            problems.get(blank.name, ""),
        )
        for blank in request_form.list_form_fields(runbook)
    ]


def _list_options(
    parts: WebDependencies,
    visitor: Visitor,
    runbook: type[AnyRunbook],
    form_field: FormField,
    typed: Mapping[str, str],
) -> Sequence[str]:
    host = typed.get("host", "")
    if form_field.kind == "host":
        with parts.database.reading(visitor.view_rights) as tx:
            now = tx.now
        return list(
            list_requestable_hosts(
                visitor.policy, runbook, person=visitor.id, source="web", now=now
            )
        )
    if (
        form_field.choices
        or parts.form_options is None
        or host not in visitor.policy.inventory.hosts
    ):
        return ()
    return parts.form_options.list_options(
        runbook, form_field, host=host, person=visitor.id, source="web", form_values=typed
    )


def _preview_request(
    parts: WebDependencies, visitor: Visitor, runbook: type[AnyRunbook], host: str
) -> Sequence[str]:
    """Say what would come of it on this host; nothing as long as none is chosen."""
    if host not in visitor.policy.inventory.hosts:
        return ()
    with parts.database.reading(visitor.view_rights) as tx:
        meant = PreviewQuestion(runbook, (host,))
        seen = preview_request(tx, visitor.policy, meant, person=visitor.id, source="web")
    return seen.describe()
