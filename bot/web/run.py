"""Page of one run: plan, approvals, output, timeline, and the actions on it."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request, Response

from bot.audit.run_proof import RunVerification
from bot.db import runs
from bot.db.database import Transaction
from bot.model import request_form, resubmit
from bot.model.errors import InvalidRequestError, StepUpRequired
from bot.model.run import RequestOrigin, Run, State, describe_proposals
from bot.queries.run_timeline import build_run_events
from bot.queries.run_view import RunView, Viewer, build_run_view
from bot.web.auth import CurrentUser, PassiveUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.fanout_chart import build_fanout_chart
from bot.web.form_values import FormValues
from bot.web.refusals import perform_and_redirect
from bot.web.step_groups import group_equal_steps
from bot.web.templating import render_page
from runbooks import load_catalogue

router = APIRouter(prefix="/runs/{number}")

RunIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]

# Notices after an action, by the value of `done` in the address.
_DONE_NOTICES: Mapping[str, str] = {
    "approved": "Your approval is recorded.",
    "denied": "The request is denied. No command was sent.",
    "countered": "Your values are proposed. The request stays pending until they are accepted.",
    "accepted": "You accepted the values. The run now needs approval.",
    "asked": "Your question is sent to the requester. The run stays pending.",
    "answered": "Your answer is recorded, and the approvers see it.",
    "reassigned": "The run is assigned to another approver, who is notified.",
    "withdrawn": "The request is withdrawn. No command was sent.",
    "undo": "This is the plan of the undo. Nothing runs until you request it.",
    "requested": "Requested. It starts as soon as nothing holds it.",
    "replanned": "The earlier plan was not current any more. This is a new one.",
    "break-glass": "Break-glass is active. The owners are notified; a review is due within 24 h.",
    "reviewed": "Your review is recorded.",
    "stopped": "The run is stopped. No further commands are sent.",
    "resolved": "The run is resolved, and the host is unlocked.",
}


@router.get("")
def show_run(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, done: str = ""
) -> Response:
    """Show the whole page."""
    return render_run_page(request, deps, user, number, notice=_DONE_NOTICES.get(done, ""))


@router.get("/live")
def show_live_part(
    request: Request,
    deps: WebDeps,
    user: PassiveUser,
    number: RunIdPath,
    stamp: str = "",
    streamed: str = "",
) -> Response:
    """Return the part of the page that changes, or status 204 if nothing has changed.

    Args:
        stamp: Stamp of what the page shows now.
        streamed: Phase of the table of hosts, if the stream updates the table; it is then kept.
    """
    with deps.database.reading(user.view_rights) as tx:
        view = _build_view(tx, number, user)
    keep_hosts = streamed == _get_hosts_phase(view) and not view.run.is_ended
    if stamp in {
        _compute_stamp(view),
        _compute_stamp_without_hosts(view) if keep_hosts else _compute_stamp(view),
    }:
        return Response(status_code=204)
    return render_page(
        request, "run_update.html", **_list_variables(view, user) | {"streamed": keep_hosts}
    )


@router.post("/approve")
def approve_run(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Approve the plan whose digest was on the page."""

    def act() -> None:
        _check_irreversible_is_confirmed(deps, user, number, form)
        deps.service.approve_run(
            number,
            person=user.id,
            digest=form.get("digest", ""),
            reason=form.get("reason", ""),
            session=user.session_token,
        )

    return _perform_and_redirect(request, deps, user, number, act, "approved")


@router.post("/deny")
def deny_run(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    def act() -> None:
        deps.service.deny_run(number, person=user.id, reason=form.get("reason", ""))

    return _perform_and_redirect(request, deps, user, number, act, "denied")


@router.post("/counter")
def propose_values(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Propose other values, and redirect to the run that has them."""

    def act() -> int:
        changes = {
            name.removeprefix("field-"): value
            for name, value in form.items()
            if name.startswith("field-")
        }
        return deps.service.propose_values(
            number, person=user.id, changed_values=changes, reason=form.get("reason", "")
        ).id

    return _perform_and_redirect(request, deps, user, number, act, "countered")


@router.post("/accept")
def accept_proposal(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Accept the values that an approver proposes."""

    def act() -> None:
        deps.service.accept_proposal(number, person=user.id, digest=form.get("digest", ""))

    return _perform_and_redirect(request, deps, user, number, act, "accepted")


@router.post("/question")
def ask_question(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    def act() -> None:
        deps.service.ask_question(number, person=user.id, text=form.get("text", ""))

    return _perform_and_redirect(request, deps, user, number, act, "asked")


@router.post("/answer")
def answer_question(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    def act() -> None:
        deps.service.answer_question(number, person=user.id, text=form.get("text", ""))

    return _perform_and_redirect(request, deps, user, number, act, "answered")


@router.post("/reassign")
def reassign_run(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Ask another approver to decide the run."""

    def act() -> None:
        deps.service.reassign_run(
            number,
            person=user.id,
            assignee=form.get("person", ""),
            reason=form.get("reason", ""),
        )

    return _perform_and_redirect(request, deps, user, number, act, "reassigned")


@router.post("/withdraw")
def withdraw_run(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath
) -> Response:
    def act() -> None:
        deps.service.withdraw_run(number, person=user.id)

    return _perform_and_redirect(request, deps, user, number, act, "withdrawn")


@router.post("/stop")
def stop_run(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Stop the run after the current step."""

    def act() -> None:
        deps.service.stop_run(number, person=user.id, reason=form.get("reason", ""))

    return _perform_and_redirect(request, deps, user, number, act, "stopped")


@router.post("/undo")
def request_undo(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Plan the undo, and redirect to its plan."""

    def act() -> int:
        return deps.service.request_undo(
            number,
            person=user.id,
            origin=RequestOrigin("web", user=user.id),
            reason=form.get("reason", ""),
            plan_only=True,
        ).id

    return _perform_and_redirect(request, deps, user, number, act, "undo")


@router.post("/request")
def request_plan(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Request the plan whose digest was on the page. A plan that is not current is made again."""

    def act() -> int:
        _check_irreversible_is_confirmed(deps, user, number, form)
        return deps.service.request_plan_or_replan(
            number,
            person=user.id,
            digest=form.get("digest", ""),
            origin=RequestOrigin("web", user=user.id),
            reason=form.get("reason", ""),
        ).id

    return _perform_and_redirect(
        request, deps, user, number, act, "requested", outcome_elsewhere="replanned"
    )


@router.post("/replan")
def replan_run(request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath) -> Response:
    """Plan the request again, and redirect to the new run."""

    def act() -> int:
        origin = RequestOrigin("web", user=user.id)
        return deps.service.replan_run(number, person=user.id, origin=origin).id

    return _perform_and_redirect(request, deps, user, number, act, "replanned")


@router.post("/break-glass")
def activate_break_glass(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Start the plan whose digest was on the page, without approvals and despite freezes."""

    breaking, reason = deps.service.break_glass, form.get("reason", "")

    def act() -> None:
        digest = form.get("digest", "")
        try:
            breaking.activate_break_glass(
                number,
                person=user.id,
                session=user.session_token,
                digest=digest,
                reason=reason,
            )
        except StepUpRequired:
            # Keep the typed reason for when the user comes back from the step-up page.
            breaking.request_break_glass(number, person=user.id, reason=reason)
            raise

    return _perform_and_redirect(request, deps, user, number, act, "break-glass")


@router.post("/review")
def review_break_glass(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Record the review of a break-glass use."""

    def act() -> None:
        deps.service.break_glass.review_break_glass(
            number, person=user.id, findings=form.get("findings", "")
        )

    return _perform_and_redirect(request, deps, user, number, act, "reviewed")


@router.post("/resolve")
def resolve_run(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Record the outcome of a run with an unknown outcome."""

    def act() -> None:
        outcome = form.get("outcome", "")
        if outcome not in {"succeeded", "failed"}:
            raise InvalidRequestError("choose whether the change was made or not")
        deps.service.resolve_run(
            number,
            person=user.id,
            succeeded=outcome == "succeeded",
            reason=form.get("reason", ""),
        )

    return _perform_and_redirect(request, deps, user, number, act, "resolved")


def _perform_and_redirect(
    request: Request,
    deps: WebDependencies,
    user: User,
    number: int,
    action: Callable[[], int | None],
    outcome: str,
    outcome_elsewhere: str = "",
) -> Response:
    """Run *action* and redirect to the run, or render the page again with the error.

    Args:
        outcome: Key of the notice.
        outcome_elsewhere: Key of the notice if the action returns another run; "" for the same.
    """

    def act() -> str | None:
        other = action() or number
        return None if other == number else f"/runs/{other}?done={outcome_elsewhere or outcome}"

    render = partial(render_run_page, request, deps, user, number)
    return perform_and_redirect(act, render, page=f"/runs/{number}", outcome=outcome)


def render_run_page(  # noqa: PLR0913 - keyword arguments for what is shown above the run
    request: Request,
    deps: WebDependencies,
    user: User,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
    verification_result: RunVerification | None = None,
) -> Response:
    """Return the whole page, with *verification_result* if the run was just verified."""
    with deps.database.reading(user.view_rights) as tx:
        view = _build_view(tx, number, user)
    variables = _list_variables(view, user) | {
        "alert": alert,
        "notice": notice,
        "proof": verification_result,
    }
    return render_page(request, "run.html", status=status, **variables)


def _build_view(tx: Transaction, number: int, user: User) -> RunView:
    return build_run_view(tx, number, user.policy, Viewer(user.id, user.session_token))


def _list_variables(view: RunView, user: User) -> dict[str, Any]:
    """Return the variables of the templates of the page."""
    run = view.run
    child_runs = view.children
    outputs_count = sum(record is not None for _, _, record in view.steps)
    return {
        "view": view,
        "run": run,
        "timeline": build_run_events(view.entries, user.get_person_name),
        "entries": view.entries[::-1],
        "now": view.now,
        "fanout": build_fanout_chart(
            child_runs, started=run.started_at, ended=run.ended_at, now=view.now
        )
        if child_runs
        else None,
        "stamp": _compute_stamp(view),
        "stamp_without_hosts": _compute_stamp_without_hosts(view),
        "hosts_phase": _get_hosts_phase(view),
        "editable_fields": _list_editable_fields(run),
        "resubmit_url": _build_resubmit_url(run),
        "streamed": False,
        "proposals": describe_proposals(view.proposals),
        "step_groups": group_equal_steps(view.steps),
        "outputs_count": outputs_count,
        "tabs": _list_tabs(run, has_output=outputs_count > 0),
    }


def _list_tabs(run: Run, *, has_output: bool) -> list[tuple[str, str]]:
    """Return the parts of the page, each with its id and its label."""
    output = [("output", "Output")] if has_output else []
    first = "Result" if run.kind == "check" else "Plan"
    return [("plan", first), *output, ("timeline", "Timeline"), ("changelog", "Change log")]


def _check_irreversible_is_confirmed(
    deps: WebDependencies, user: User, number: int, form: Mapping[str, str]
) -> None:
    """Raise InvalidRequestError unless the consequence of a step without undo is confirmed."""
    with deps.database.reading(user.view_rights) as tx:
        run = runs.get_run(tx, number)
    steps = run.plan.steps if run.plan and run.state in {State.PLANNED, State.PENDING} else ()
    for step in steps:
        if step.undo is None and form.get("confirmed") != "yes":
            raise InvalidRequestError(
                f"confirm that “{step.title}” cannot be undone: {step.no_undo_reason}"
            )


def _compute_stamp(view: RunView) -> str:
    """Return a hash that changes whenever the page would show something else."""
    versions = [(child.id, child.version) for child in view.children]
    return f"{_compute_stamp_without_hosts(view)}-{_hash_value(versions)}"


def _compute_stamp_without_hosts(view: RunView) -> str:
    """Return the same hash, without the table of hosts."""
    head = view.entries[-1].hash if view.entries else ""
    state = (
        view.run.version,
        head,
        len(view.decisions),
        view.lock,
        view.allowed_actions,
        view.proposals,
    )
    return _hash_value((*state, view.is_stepped_up))


def _hash_value(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _get_hosts_phase(view: RunView) -> str:
    """Return the phase of the run, because the table of hosts moves on the page when it starts."""
    return "started" if view.run.started_at else "before"


def _list_editable_fields(run: Run) -> list[tuple[request_form.FormField, str]]:
    """Return the fields of a request that can be edited, with their values."""
    runbook = load_catalogue().get(run.runbook)
    if runbook is None:
        return []
    return [
        (field, run.values.get(field.name, field.default))
        for field in request_form.list_form_fields(runbook)
        if field.name != "host"
    ]


def _build_resubmit_url(run: Run) -> str:
    """Return the address of the request form with the same values, or "" if there is none."""
    if run.undo_of is not None or run.is_sequence:
        return f"/runs/{run.undo_of}#undo"
    if resubmit.get_resubmit_refusal(run):
        return ""
    query = urlencode({"runbook": run.runbook, **resubmit.get_resubmit_values(run)})
    return f"/runbooks/form?{query}"
