"""Runbooks page, and the request form of each runbook."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.responses import RedirectResponse

from bot.model import host_patterns, request_form
from bot.model.request_form import FormField, InvalidValuesError, RequestSyntaxError
from bot.model.run import RequestTerms, Run
from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.model.tickets import MAX_KEY_LENGTH
from bot.policy.explain import PreviewQuestion, parse_preview_question
from bot.queries.form_options import list_requestable_hosts
from bot.queries.preview import preview_request
from bot.web.auth import User
from bot.web.visit import MAX_HOSTS_LENGTH, Visit, VisitOfPage
from connectors.errors import DomainError
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

router = APIRouter(prefix="/runbooks")

_FIELD_PREFIX = "field-"

TextQuery = Annotated[str, Query(max_length=100)]
TicketQuery = Annotated[str, Query(max_length=MAX_KEY_LENGTH)]
ReasonQuery = Annotated[str, Query(max_length=1000)]
# One host, or several: `lb1,lb2`, `lb*`, `@haproxy`.
HostQuery = Annotated[str, Query(max_length=MAX_HOSTS_LENGTH)]
FieldHostQuery = Annotated[str, Query(alias=f"{_FIELD_PREFIX}host", max_length=MAX_HOSTS_LENGTH)]


@dataclass(frozen=True)
class ShownField:
    """One field of the form."""

    form_field: FormField
    value: str
    options: Sequence[str]
    """Suggestions; other values may be typed too."""
    problem: str
    """What is wrong with the value; "" if nothing."""


@dataclass(frozen=True)
class _TypedForm:
    """What is typed into the form of a runbook."""

    runbook: type[AnyRunbook]
    values: Mapping[str, str]
    """By field."""
    reason: str = ""
    ticket: str = ""


@router.get("")
def list_runbooks_page(visit: Visit, host: HostQuery = "", search: TextQuery = "") -> Response:
    """Show the runbooks in groups.

    Args:
        visit: The visit.
        host: Show only runbooks for this host.
        search: Show only runbooks whose name or summary contains all of these words.
    """
    known_host = visit.policy.inventory.hosts.get(host)
    runbooks = list_runbook_info()
    if known_host is not None:
        runbooks = [one for one in runbooks if not one.tag or one.tag in known_host.tags]
    words = search.casefold().split()
    runbooks = [
        one for one in runbooks if all(w in f"{one.name} {one.summary}".casefold() for w in words)
    ]
    groups: dict[str, list[RunbookInfo]] = {}
    for one in runbooks:
        groups.setdefault(one.name.split()[0], []).append(one)
    host_name = known_host.name if known_host else ""
    return visit.render(
        "runbooks.html", groups=groups, host=host_name, typed=search, count=len(runbooks)
    )


@router.get("/form")
def show_form(
    visit: Visit,
    runbook: TextQuery = "",
    host: HostQuery = "",
    reason: ReasonQuery = "",
    ticket: TicketQuery = "",
) -> Response:
    """Show the request form of a runbook, with the values of the address filled in."""
    runbook_class = _get_runbook(runbook)
    query = visit.request.query_params
    typed = {name: query.get(name, "")[:300] for name in runbook_class.model_fields}
    values = typed | ({"host": host} if host else {})
    return _render_form(visit, _TypedForm(runbook_class, values, reason, ticket))


@router.get("/options")
def list_field_options(
    visit: Visit,
    runbook: TextQuery = "",
    host: FieldHostQuery = "",
) -> Response:
    """Return the options that the chosen host has for the fields. This queries the host."""
    runbook_class = _get_runbook(runbook)
    typed = _read_typed(visit.request.query_params, runbook_class) | {"host": host}
    options = visit.deps.form_options
    if options is not None and host in visit.policy.inventory.hosts:
        options.read_options(
            runbook_class, host=host, person=visit.person, source="web", form_values=typed
        )
    fields = _build_fields(visit, _TypedForm(runbook_class, typed))
    return visit.render("field_options.html", fields=fields)


@router.get("/preview")
def show_preview(visit: Visit, runbook: TextQuery = "") -> Response:
    """Return what a request with the typed values would need, as a part of the form."""
    runbook_class = _get_runbook(runbook)
    typed = _TypedForm(runbook_class, _read_typed(visit.request.query_params, runbook_class))
    return visit.render("request_preview.html", preview=_preview_request(visit, typed))


@router.post("")
def submit_request(visit: Visit) -> Response:
    """Request a check or plan a change, and redirect to it; or show the form with problems."""
    runbook_class = _get_runbook(visit.form.get("runbook", ""))
    values = _read_typed(visit.form, runbook_class)
    typed = _TypedForm(runbook_class, values, visit.reason, visit.ticket)
    problems = _find_problems(visit.user, runbook_class, values)
    if problems:
        return _render_form(visit, typed, problems)
    try:
        run = _request_run(visit, typed)
    except DomainError as error:
        return _render_form(visit, typed, refusal=error)
    return RedirectResponse(f"/runs/{run.id}", 303)


def _read_typed(values: Mapping[str, str], runbook: type[AnyRunbook]) -> dict[str, str]:
    return {
        name: values.get(f"{_FIELD_PREFIX}{name}", "").strip()[:300]
        for name in runbook.model_fields
    }


def _get_runbook(name: str) -> type[AnyRunbook]:
    runbook_class = load_catalogue().get(" ".join(name.lower().split()))
    if runbook_class is None:
        raise HTTPException(404, "Runbook not found. Choose one on the Runbooks page.")
    return runbook_class


def _request_run(visit: VisitOfPage, typed: _TypedForm) -> Run:
    """Request a check. Of a change, request only the plan. Raises DomainError."""
    words = [f"{name}={value}" for name, value in typed.values.items() if value]
    host_pattern, requests = request_form.parse_request_for_hosts(
        typed.runbook, words, visit.policy.inventory.tags
    )
    return visit.service.request_on_hosts(
        requests,
        RequestTerms(
            visit.person,
            visit.origin,
            typed.reason,
            ticket=typed.ticket,
            plan_only=get_kind(typed.runbook) == "change",
        ),
        host_pattern=host_pattern,
    )


def _render_form(
    visit: VisitOfPage,
    typed: _TypedForm,
    problems: Mapping[str, str] = MappingProxyType({}),
    *,
    refusal: DomainError | None = None,
) -> Response:
    """Render the form. problems: by field; those of no field in the form are shown above it."""
    runbook = typed.runbook
    fields = _build_fields(visit, typed, problems)
    form_field_names = {field.form_field.name for field in fields}
    return visit.render(
        "request_form.html",
        status=422 if problems else 200,
        refusal=refusal,
        info=next(one for one in list_runbook_info(runbook.words) if one.name == runbook.words),
        fields=fields,
        reason=typed.reason,
        ticket=typed.ticket,
        other_problems=[problems[name] for name in set(problems) - form_field_names],
        preview=_preview_request(visit, typed),
        # When one of these fields changes, the options are loaded again.
        option_sources=["host", *(name for field in fields for name in field.form_field.within)]
        if visit.deps.form_options is not None and any(field.form_field.lists for field in fields)
        else [],
    )


def _build_fields(
    visit: VisitOfPage, typed: _TypedForm, problems: Mapping[str, str] = MappingProxyType({})
) -> list[ShownField]:
    return [
        ShownField(
            form_field,
            typed.values.get(form_field.name) or form_field.default,
            _list_options(visit, typed, form_field),
            problems.get(form_field.name, ""),
        )
        for form_field in request_form.list_form_fields(typed.runbook)
    ]


def _list_options(visit: VisitOfPage, typed: _TypedForm, form_field: FormField) -> Sequence[str]:
    host, options, person = typed.values.get("host", ""), visit.deps.form_options, visit.person
    if form_field.kind == "host":
        with visit.read_viewable() as tx:
            now = tx.now
        return list(
            list_requestable_hosts(
                visit.policy, typed.runbook, person=person, source="web", now=now
            )
        )
    if form_field.choices or options is None or host not in visit.policy.inventory.hosts:
        return ()
    return options.list_options(
        typed.runbook,
        form_field,
        host=host,
        person=person,
        source="web",
        form_values=typed.values,
    )


def _find_problems(
    user: User, runbook: type[AnyRunbook], typed: Mapping[str, str]
) -> dict[str, str]:
    """Return what is wrong with the values, by field."""
    problems: dict[str, str] = {}
    try:
        request_form.parse_values(runbook, {name: one for name, one in typed.items() if one})
    except InvalidValuesError as error:
        problems |= error.problems
    host = typed.get("host", "")
    if host_patterns.can_name_several_hosts(host):
        problems.pop("host", None)
    if host and "host" not in problems:
        try:
            _list_hosts(user, runbook, host)
        except RequestSyntaxError as error:
            problems["host"] = str(error)
    return problems


def _list_hosts(user: User, runbook: type[AnyRunbook], host: str) -> Sequence[str]:
    """Return the hosts that were typed. Raises RequestSyntaxError."""
    return parse_preview_question(user.policy, [*runbook.words.split(), host]).hosts


def _preview_request(visit: VisitOfPage, typed: _TypedForm) -> Sequence[str]:
    """Return what a request with these values would need, as sentences; empty without a host."""
    host = typed.values.get("host")
    try:
        hosts = _list_hosts(visit.user, typed.runbook, host) if host else ()
    except RequestSyntaxError:
        hosts = ()
    if not hosts:
        return ()
    fields = request_form.list_form_fields(typed.runbook)
    values = {field.name: field.default for field in fields}
    values |= {name: text for name, text in typed.values.items() if text}
    question = PreviewQuestion(typed.runbook, hosts, values)
    with visit.read_viewable() as tx:
        preview = preview_request(tx, visit.policy, question, person=visit.person, source="web")
    return preview.describe()
