"""Page of one run: plan, approvals, output, timeline, and the actions on it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query, Request, Response

from bot.audit import entry_proof, run_proof
from bot.audit.run_proof import RunVerification
from bot.db import runs
from bot.db.database import Transaction
from bot.model import request_form, resubmit
from bot.model.errors import InvalidRequestError, StepUpRequired
from bot.model.host_patterns import join_host_parts
from bot.model.plan import PlannedStep
from bot.model.run import Run, State, StepRecord, describe_proposals
from bot.model.run_states import STATUSES_BY_OUTCOME, Outcome
from bot.model.text import escape_control
from bot.queries.run_timeline import build_run_events
from bot.queries.run_view import RunView, Viewer, build_run_view
from bot.web.auth import PassiveUser, User
from bot.web.deps import WebDeps
from bot.web.fanout_chart import build_fanout_chart
from bot.web.templating import parse_reader_deadline, render_page
from bot.web.visit import MAX_HOSTS_LENGTH, IdPath, Visit, VisitOfPage, add_action
from connectors.errors import DomainError
from runbooks import load_catalogue

router = APIRouter(prefix="/runs/{number}")


NumberedStep = tuple[int, PlannedStep, StepRecord | None]

# Notices after an action, by the value of `done` in the address. They say what was done. What
# becomes of the run is said by its state, because the address may be opened again later.
_DONE_NOTICES: Mapping[str, str] = {
    "approved": "Your approval is recorded.",
    "signed": "Your signature is recorded.",
    "held": "The run is held. It needs its approvals again before it starts.",
    "denied": "The request is denied. No command was sent.",
    "countered": "Your values are proposed to the requester.",
    "accepted": "You accepted the values.",
    "asked": "Your question is sent to the requester.",
    "answered": "Your answer is recorded, and the approvers see it.",
    "reassigned": "The run is assigned to another approver, who is notified.",
    "withdrawn": "The request is withdrawn. No command was sent.",
    "undo": "The undo is planned first. Nothing runs until you request its plan.",
    "requested": "Your request is recorded.",
    "replanned": "The earlier plan was not current any more. This is a new one.",
    "break-glass": "Break-glass is active. The owners are notified; a review is due within 24 h.",
    "reviewed": "Your review is recorded.",
    "stopped": "The run is stopped. No further commands are sent.",
    "resolved": "The run is resolved, and the host is unlocked.",
}


@dataclass(frozen=True)
class StepGroup:
    """Steps that differ only in their host."""

    steps: Sequence[NumberedStep]

    @property
    def number(self) -> int:
        return self.steps[0][0]

    @property
    def step(self) -> PlannedStep:
        return self.steps[0][1]

    @property
    def records(self) -> Sequence[StepRecord]:
        return [record for _, _, record in self.steps if record]


@router.get("")
def show_run(visit: Visit, number: IdPath) -> Response:
    """Show the whole page."""
    return render_run_page(visit, number)


@router.get("/live")
def show_live_part(
    request: Request,
    deps: WebDeps,
    user: PassiveUser,
    number: IdPath,
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
    if stamp in {_compute_stamp(view), _compute_stamp_without_hosts(view) if keep_hosts else None}:
        return Response(status_code=204)
    return render_page(
        request, "run_update.html", **_list_variables(view, user) | {"streamed": keep_hosts}
    )


def render_run_page(
    visit: VisitOfPage,
    number: int,
    *,
    refusal: DomainError | None = None,
    verification_result: RunVerification | None = None,
) -> Response:
    """Return the whole page, with *verification_result* if the run was just verified."""
    with visit.read_viewable() as tx:
        view = _build_view(tx, number, visit.user)
    variables = _list_variables(view, visit.user)
    return visit.render(
        "run.html",
        refusal=refusal,
        notice=_DONE_NOTICES.get(visit.done, ""),
        proof=verification_result,
        **variables,
    )


_action = partial(add_action, router, page="/runs/{number}", render=render_run_page)


@_action("/approve")
def approve_run(visit: Visit, number: IdPath) -> str:
    """Approve the plan whose digest was on the page."""
    _check_irreversible_is_confirmed(visit, number)
    visit.service.approve_run(
        number,
        person=visit.person,
        digest=visit.form.get("digest", ""),
        reason=visit.reason,
        session=visit.session,
        start_at=_read_start_time(visit),
    )
    return f"/runs/{number}?done=approved"


def _read_start_time(visit: Visit) -> int | None:
    """Return the time that the form names, in microseconds; None for as soon as possible."""
    typed = visit.form.get("start", "")
    if not typed.strip():
        return None
    with visit.read_viewable() as tx:
        return parse_reader_deadline(visit.request, typed, now=tx.now)


@_action("/hold")
def hold_run(visit: Visit, number: IdPath) -> str:
    """Let an approved run need its approvals again before it starts."""
    visit.service.hold_run(number, person=visit.person, reason=visit.reason)
    return f"/runs/{number}?done=held"


@_action("/deny")
def deny_run(visit: Visit, number: IdPath) -> str:
    visit.service.deny_run(number, person=visit.person, reason=visit.reason)
    return f"/runs/{number}?done=denied"


@_action("/counter")
def propose_values(visit: Visit, number: IdPath) -> str:
    """Propose other values, and redirect to the run that has them."""
    changes = {
        name.removeprefix("field-"): value
        for name, value in visit.form.items()
        if name.startswith("field-")
    }
    run = visit.service.propose_values(
        number, person=visit.person, changed_values=changes, reason=visit.reason
    )
    return f"/runs/{run.id}?done=countered"


@_action("/accept")
def accept_proposal(visit: Visit, number: IdPath) -> str:
    """Accept the values that an approver proposes."""
    digest = visit.form.get("digest", "")
    visit.service.accept_proposal(number, person=visit.person, digest=digest)
    return f"/runs/{number}?done=accepted"


@_action("/question")
def ask_question(visit: Visit, number: IdPath) -> str:
    visit.service.ask_question(number, person=visit.person, text=visit.form.get("text", ""))
    return f"/runs/{number}?done=asked"


@_action("/answer")
def answer_question(visit: Visit, number: IdPath) -> str:
    visit.service.answer_question(number, person=visit.person, text=visit.form.get("text", ""))
    return f"/runs/{number}?done=answered"


@_action("/reassign")
def reassign_run(visit: Visit, number: IdPath) -> str:
    """Ask another approver to decide the run."""
    assignee = visit.form.get("person", "")
    visit.service.reassign_run(number, person=visit.person, assignee=assignee, reason=visit.reason)
    return f"/runs/{number}?done=reassigned"


@_action("/withdraw")
def withdraw_run(visit: Visit, number: IdPath) -> str:
    visit.service.withdraw_run(number, person=visit.person)
    return f"/runs/{number}?done=withdrawn"


@_action("/stop")
def stop_run(visit: Visit, number: IdPath) -> str:
    """Stop the run after the current step."""
    visit.service.stop_run(number, person=visit.person, reason=visit.reason)
    return f"/runs/{number}?done=stopped"


@_action("/undo")
def request_undo(visit: Visit, number: IdPath) -> str:
    """Plan the undo, and redirect to its plan."""
    run = visit.service.request_undo(number, visit.plan_terms)
    return f"/runs/{run.id}?done=undo"


@_action("/request")
def request_plan(visit: Visit, number: IdPath) -> str:
    """Request the plan whose digest was on the page. A plan that is not current is made again."""
    _check_irreversible_is_confirmed(visit, number)
    run = visit.service.request_plan_or_replan(
        number,
        person=visit.person,
        digest=visit.form.get("digest", ""),
        origin=visit.origin,
        reason=visit.reason,
    )
    return f"/runs/{run.id}?done={'requested' if run.id == number else 'replanned'}"


@_action("/replan")
def replan_run(visit: Visit, number: IdPath) -> str:
    """Plan the request again, and redirect to the new run."""
    run = visit.service.replan_run(number, person=visit.person, origin=visit.origin)
    return f"/runs/{run.id}?done=replanned"


@_action("/break-glass")
def activate_break_glass(visit: Visit, number: IdPath) -> str:
    """Start the plan whose digest was on the page, without approvals and despite freezes."""
    breaking, person, reason = visit.service.break_glass, visit.person, visit.reason
    digest = visit.form.get("digest", "")
    try:
        breaking.activate_break_glass(
            number, person=person, session=visit.session, digest=digest, reason=reason
        )
    except StepUpRequired:
        # Keep the typed reason for when the user comes back from the step-up page.
        breaking.request_break_glass(number, person=person, reason=reason)
        raise
    return f"/runs/{number}?done=break-glass"


@_action("/review")
def review_break_glass(visit: Visit, number: IdPath) -> str:
    """Record the review of a break-glass use."""
    visit.service.break_glass.review_break_glass(
        number, person=visit.person, findings=visit.form.get("findings", "")
    )
    return f"/runs/{number}?done=reviewed"


@_action("/resolve")
def resolve_run(visit: Visit, number: IdPath) -> str:
    """Record the outcome of a run with an unknown outcome."""
    outcome = visit.form.get("outcome", "")
    if outcome not in {"succeeded", "failed"}:
        raise InvalidRequestError("choose whether the change was made or not")
    visit.service.resolve_run(
        number, person=visit.person, succeeded=outcome == "succeeded", reason=visit.reason
    )
    return f"/runs/{number}?done=resolved"


@router.post("/verify")
def verify_run_entries(visit: Visit, number: IdPath) -> Response:
    """Verify the entries of a run. A POST, so that only the button starts this work."""
    with visit.read_viewable() as tx:
        result = run_proof.verify_run(tx, number)
    return render_run_page(visit, number, verification_result=result)


@router.get("/proof")
def export_run_proofs(visit: Visit, number: IdPath) -> Response:
    """Download the proofs of a run, which other tools verify."""
    with visit.read_viewable() as tx:
        packed = entry_proof.pack_run_proofs(entry_proof.build_run_proofs(tx, number))
    headers = {"Content-Disposition": f'attachment; filename="run-{number}-proofs.zip"'}
    return Response(packed, headers=headers, media_type="application/zip")


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
        "fanout": build_fanout_chart(child_runs, run, now=view.now) if child_runs else None,
        "stamp": _compute_stamp(view),
        "stamp_without_hosts": _compute_stamp_without_hosts(view),
        "hosts_phase": _get_hosts_phase(view),
        "editable_fields": _list_editable_fields(run),
        "resubmit_url": _build_resubmit_url(run),
        "failed_hosts_url": _build_failed_hosts_url(view),
        "streamed": False,
        "proposals": describe_proposals(view.proposals),
        "step_groups": _group_equal_steps(view.steps),
        "outputs_count": outputs_count,
        "tabs": _list_tabs(run, has_output=outputs_count > 0),
    }


def _list_tabs(run: Run, *, has_output: bool) -> list[tuple[str, str]]:
    """Return the parts of the page, each with its id and its label."""
    output = [("output", "Output")] if has_output else []
    first = "Result" if run.kind == "check" else "Plan"
    return [("plan", first), *output, ("timeline", "Timeline"), ("changelog", "Change log")]


def _group_equal_steps(steps: Sequence[NumberedStep]) -> Sequence[StepGroup]:
    """Fold equal steps on several hosts, in the order of the first step of each."""
    groups: dict[tuple[object, ...], list[NumberedStep]] = {}
    for numbered in steps:
        step = numbered[1]
        key = (step.title, step.command, step.undo, step.no_undo_reason, step.before, step.after)
        hosts = groups.setdefault((*key, ""), [])
        if any(other.host == step.host for _, other, _ in hosts):
            hosts = groups.setdefault((*key, numbered[0]), [])
        hosts.append(numbered)
    return [StepGroup(group) for group in groups.values()]


def _check_irreversible_is_confirmed(visit: VisitOfPage, number: int) -> None:
    """Raise InvalidRequestError unless the consequence of a step without undo is confirmed."""
    with visit.read_viewable() as tx:
        run = runs.get_run(tx, number)
    steps = run.plan.steps if run.plan and run.state in {State.PLANNED, State.PENDING} else ()
    for step in steps:
        if step.undo is None and visit.form.get("confirmed") != "yes":
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
    seen = (view.run.version, head, len(view.decisions), view.lock, view.proposals)
    return _hash_value((*seen, view.allowed_actions, view.is_stepped_up))


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


def _build_failed_hosts_url(view: RunView) -> str:
    """Return the address of the form for the hosts without success; "" if there is none."""
    run = view.run
    done = STATUSES_BY_OUTCOME[Outcome.SUCCEEDED] | STATUSES_BY_OUTCOME[Outcome.NEEDS_ATTENTION]
    left = [child.host for child in view.children if child.is_ended and child.status not in done]
    if not left or len(left) == len(view.children) or run.is_sequence or run.undo_of is not None:
        return ""
    hosts = join_host_parts(left)
    return _build_resubmit_url(run, hosts=hosts) if len(hosts) <= MAX_HOSTS_LENGTH else ""


def _build_resubmit_url(run: Run, *, hosts: str = "") -> str:
    """Return the address of the request form with the same values, or "" if there is none.

    hosts: other hosts than those of the run, as the field for hosts takes them.
    """
    if run.undo_of is not None or run.is_sequence:
        return f"/runs/{run.undo_of}#undo"
    if resubmit.get_resubmit_refusal(run):
        return ""
    values = {**resubmit.get_resubmit_values(run), **({"host": hosts} if hosts else {})}
    query = urlencode({"runbook": run.runbook, **values})
    return f"/runbooks/form?{query}"


@router.get("/output/{step}.txt")
def show_output(
    visit: Visit,
    number: IdPath,
    step: IdPath,
    filter_text: Annotated[str, Query(alias="filter", max_length=200)] = "",
) -> Response:
    """Return the whole output as a file, or the lines that contain *filter_text*, with numbers."""
    with visit.read_viewable() as tx:
        record = build_run_view(tx, number, None, with_log=False).step_records.get(step)
    if record is None or not record.output.strip():
        raise HTTPException(404, f"No output of step {step} of run {number} is stored.")
    text = escape_control(record.output)
    search_text = filter_text.strip().casefold()
    if search_text:
        return Response(_filter_lines(text, search_text), media_type="text/plain; charset=utf-8")
    disposition = f'attachment; filename="run-{number}-step-{step}.txt"'
    headers = {"Content-Disposition": disposition}
    return Response(text, headers=headers, media_type="text/plain; charset=utf-8")


def _filter_lines(text: str, search_text: str) -> str:
    lines = text.splitlines()
    matches = [f"{n}: {line}" for n, line in enumerate(lines, 1) if search_text in line.casefold()]
    return "\n".join([f"{len(matches)} of {len(lines)} lines", "", *matches, ""])
