"""Runbooks page, and the request form of each runbook."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse

from bot.model import host_patterns, request_form
from bot.model.request_form import FormField, InvalidValuesError, RequestSyntaxError
from bot.model.run import RequestOrigin, Run
from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.model.tickets import MAX_KEY_LENGTH
from bot.policy.explain import PreviewQuestion, parse_preview_question
from bot.queries.form_options import list_requestable_hosts
from bot.queries.preview import preview_request
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

router = APIRouter(prefix="/runbooks")

_FIELD_PREFIX = "field-"

TextQuery = Annotated[str, Query(max_length=100)]
TicketQuery = Annotated[str, Query(max_length=MAX_KEY_LENGTH)]
ReasonQuery = Annotated[str, Query(max_length=1000)]
HostQuery = Annotated[str, Query(max_length=64)]
FieldHostQuery = Annotated[str, Query(alias=f"{_FIELD_PREFIX}host", max_length=64)]


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
    """The values typed into a form, with problems by field and an alert for the whole form."""

    values: Mapping[str, str]
    reason: str = ""
    ticket: str = ""
    problems: Mapping[str, str] = dataclass_field(default_factory=dict[str, str])
    alert: str = ""
    status: int = 200


@router.get("")
def list_runbooks_page(
    request: Request, user: CurrentUser, host: HostQuery = "", search: TextQuery = ""
) -> Response:
    """Show the runbooks in groups.

    Args:
        request: The HTTP request.
        user: The signed-in user.
        host: Show only runbooks for this host.
        search: Show only runbooks whose name or summary contains all of these words.
    """
    known_host = user.policy.inventory.hosts.get(host)
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
    return render_page(
        request, "runbooks.html", groups=groups, host=host_name, typed=search, count=len(runbooks)
    )


@router.get("/form")
def show_form(
    request: Request,
    deps: WebDeps,
    user: CurrentUser,
    runbook: TextQuery = "",
    host: HostQuery = "",
    reason: ReasonQuery = "",
    ticket: TicketQuery = "",
) -> Response:
    """Show the request form of a runbook, with the values of the address filled in."""
    runbook_class = _get_runbook(runbook)
    typed = {name: request.query_params.get(name, "")[:300] for name in runbook_class.model_fields}
    values = typed | ({"host": host} if host else {})
    return _render_form(request, deps, user, runbook_class, _TypedForm(values, reason, ticket))


@router.get("/options")
def list_field_options(
    request: Request,
    deps: WebDeps,
    user: CurrentUser,
    runbook: TextQuery = "",
    host: FieldHostQuery = "",
) -> Response:
    """Return the options that the chosen host has for the fields. This queries the host."""
    runbook_class = _get_runbook(runbook)
    typed = _read_typed(request.query_params, runbook_class) | {"host": host}
    if deps.form_options is not None and host in user.policy.inventory.hosts:
        deps.form_options.read_options(
            runbook_class, host=host, person=user.id, source="web", form_values=typed
        )
    fields = _build_fields(deps, user, runbook_class, typed, {})
    return render_page(request, "field_options.html", fields=fields)


@router.get("/preview")
def show_preview(
    request: Request, deps: WebDeps, user: CurrentUser, runbook: TextQuery = ""
) -> Response:
    """Return what a request with the typed values would need, as a part of the form."""
    runbook_class = _get_runbook(runbook)
    typed = _read_typed(request.query_params, runbook_class)
    preview = _preview_request(deps, user, runbook_class, typed)
    return render_page(request, "request_preview.html", preview=preview)


@router.post("")
def submit_request(
    request: Request, deps: WebDeps, user: CurrentUser, form: FormValues
) -> Response:
    """Request a check or plan a change, and redirect to it; or show the form with problems."""
    runbook_class = _get_runbook(form.get("runbook", ""))
    typed = _read_typed(form, runbook_class)
    reason, ticket = form.get("reason", ""), form.get("ticket", "")
    problems = _find_problems(user, runbook_class, typed)
    if problems:
        typed_form = _TypedForm(typed, reason, ticket, problems, status=422)
        return _render_form(request, deps, user, runbook_class, typed_form)
    try:
        run = _request_run(deps, user, runbook_class, typed, reason=reason, ticket=ticket)
    except REFUSALS as error:
        status = get_http_status(error)
        typed_form = _TypedForm(typed, reason, ticket, alert=str(error), status=status)
        return _render_form(request, deps, user, runbook_class, typed_form)
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


def _request_run(
    deps: WebDependencies,
    user: User,
    runbook: type[AnyRunbook],
    typed: Mapping[str, str],
    *,
    reason: str,
    ticket: str,
) -> Run:
    """Request a check. Of a change, request only the plan. Raises one of REFUSALS."""
    words = [f"{name}={value}" for name, value in typed.items() if value]
    host_pattern, requests = request_form.parse_request_for_hosts(
        runbook, words, user.policy.inventory.tags
    )
    origin = RequestOrigin("web", user=user.id)
    plan_only = get_kind(runbook) == "change"
    if host_pattern:
        return deps.service.request_fanout_run(
            requests,
            host_pattern=host_pattern,
            person=user.id,
            origin=origin,
            reason=reason,
            ticket=ticket,
            plan_only=plan_only,
        )
    return deps.service.request_run(
        requests[0],
        person=user.id,
        origin=origin,
        reason=reason,
        ticket=ticket,
        plan_only=plan_only,
    )


def _render_form(
    request: Request,
    deps: WebDependencies,
    user: User,
    runbook: type[AnyRunbook],
    typed_form: _TypedForm,
) -> Response:
    fields = _build_fields(deps, user, runbook, typed_form.values, typed_form.problems)
    form_field_names = {field.form_field.name for field in fields}
    return render_page(
        request,
        "request_form.html",
        status=typed_form.status,
        info=next(one for one in list_runbook_info(runbook.words) if one.name == runbook.words),
        fields=fields,
        reason=typed_form.reason,
        ticket=typed_form.ticket,
        asks_ticket=user.policy.can_require_ticket and get_kind(runbook) == "change",
        # Problems of fields that are not in the form are shown above it.
        alerts=[
            typed_form.alert,
            *(typed_form.problems[name] for name in set(typed_form.problems) - form_field_names),
        ],
        preview=_preview_request(deps, user, runbook, typed_form.values),
        # When one of these fields changes, the options are loaded again.
        option_sources=["host", *(name for field in fields for name in field.form_field.within)]
        if deps.form_options is not None and any(field.form_field.lists for field in fields)
        else [],
    )


def _build_fields(
    deps: WebDependencies,
    user: User,
    runbook: type[AnyRunbook],
    typed: Mapping[str, str],
    problems: Mapping[str, str],
) -> list[ShownField]:
    return [
        ShownField(
            form_field,
            typed.get(form_field.name) or form_field.default,
            _list_options(deps, user, runbook, form_field, typed),
            problems.get(form_field.name, ""),
        )
        for form_field in request_form.list_form_fields(runbook)
    ]


def _list_options(
    deps: WebDependencies,
    user: User,
    runbook: type[AnyRunbook],
    form_field: FormField,
    typed: Mapping[str, str],
) -> Sequence[str]:
    host = typed.get("host", "")
    if form_field.kind == "host":
        with deps.database.reading(user.view_rights) as tx:
            now = tx.now
        return list(
            list_requestable_hosts(user.policy, runbook, person=user.id, source="web", now=now)
        )
    if form_field.choices or deps.form_options is None or host not in user.policy.inventory.hosts:
        return ()
    return deps.form_options.list_options(
        runbook, form_field, host=host, person=user.id, source="web", form_values=typed
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


def _preview_request(
    deps: WebDependencies, user: User, runbook: type[AnyRunbook], typed: Mapping[str, str]
) -> Sequence[str]:
    """Return what a request with these values would need, as sentences; empty without a host."""
    try:
        hosts = _list_hosts(user, runbook, typed["host"]) if typed.get("host") else ()
    except RequestSyntaxError:
        hosts = ()
    if not hosts:
        return ()
    values = {field.name: field.default for field in request_form.list_form_fields(runbook)}
    values |= {name: text for name, text in typed.items() if text}
    with deps.database.reading(user.view_rights) as tx:
        question = PreviewQuestion(runbook, hosts, values)
        preview = preview_request(tx, user.policy, question, person=user.id, source="web")
    return preview.describe()
