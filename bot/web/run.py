"""One run: what was asked, planned, decided, sent and proven, and the buttons to move it on."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit.run_proof import RunVerification
from bot.db.database import Transaction
from bot.model import request_form
from bot.model.errors import InvalidRequestError, StepUpRequired
from bot.model.run import RequestOrigin, Run, describe_proposals
from bot.web.auth import CurrentVisitor, PassiveVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.fanout_chart import build_fanout_chart
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.templating import render_page
from bot.workflow import resubmit
from bot.workflow.run_timeline import build_run_events
from bot.workflow.run_view import RunView, Viewer, build_run_view
from runbooks import load_catalogue

router = APIRouter(prefix="/runs/{number}")

RunIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]

# What the page says after a button, by the word in its address.
_DONE_NOTICES: Mapping[str, str] = {
    "approved": "Your approval is recorded.",
    "denied": "Your no is recorded. Nothing was sent.",
    "countered": "Your values are proposed. The request stays pending until they are accepted.",
    "accepted": "It is yours now, and waits for approval like any other.",
    "withdrawn": "The request is withdrawn. Nothing was sent.",
    "requested": "The undo is asked for. It is planned and approved like any other change.",
    "broken": "The glass is broken. The owners are told, and somebody else reviews it.",
    "reviewed": "Your review is recorded.",
    "stopped": "It is stopped: nothing more is sent for it.",
    "settled": "It is settled, and the host is free again.",
}


@router.get("")
def show_run(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, done: str = ""
) -> Response:
    """Show the whole page."""
    return render_run_page(request, parts, visitor, number, notice=_DONE_NOTICES.get(done, ""))


@router.get("/live")
def show_live_part(
    request: Request,
    parts: WebDeps,
    visitor: PassiveVisitor,
    number: RunIdPath,
    seen: str = "",
    streamed: str = "",
) -> Response:
    """Answer with the part of the page that moves, or with nothing if nothing has moved.

    streamed: how hosts are drawn on a page that its stream tells of each; they stay as they are.
    """
    with parts.database.reading(visitor.view_rights) as tx:
        view = _build_view(tx, number, visitor)
    stay = streamed == _get_hosts_display(view) and not view.run.is_ended
    if seen in {
        _compute_stamp(view),
        _compute_stamp_without_hosts(view) if stay else _compute_stamp(view),
    }:
        return Response(status_code=204)
    return render_page(
        request, "run_moved.html", **_list_variables(view, visitor) | {"streamed": stay}
    )


@router.post("/approve")
def approve_run(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Turn a key for the plan whose digest was on the page."""

    def act() -> None:
        parts.workflow.approve_run(
            number,
            person=visitor.id,
            digest=form.get("digest", ""),
            reason=form.get("reason", ""),
            session=visitor.session_token,
        )

    return _perform_and_redirect(request, parts, visitor, number, act, "approved")


@router.post("/deny")
def deny_run(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    def act() -> None:
        parts.workflow.deny_run(number, person=visitor.id, reason=form.get("reason", ""))

    return _perform_and_redirect(request, parts, visitor, number, act, "denied")


@router.post("/counter")
def propose_values(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Propose other values, and go to the run that has them."""

    def act() -> int:
        typed = {
            name.removeprefix("field-"): value
            for name, value in form.items()
            if name.startswith("field-")
        }
        return parts.workflow.propose_values(
            number, person=visitor.id, changed_values=typed, reason=form.get("reason", "")
        ).id

    return _perform_and_redirect(request, parts, visitor, number, act, "countered")


@router.post("/accept")
def accept_proposal(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Take over the values that an approver proposes."""

    def act() -> None:
        parts.workflow.accept_proposal(number, person=visitor.id, digest=form.get("digest", ""))

    return _perform_and_redirect(request, parts, visitor, number, act, "accepted")


@router.post("/withdraw")
def withdraw_run(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath
) -> Response:
    def act() -> None:
        parts.workflow.withdraw_run(number, person=visitor.id)

    return _perform_and_redirect(request, parts, visitor, number, act, "withdrawn")


@router.post("/stop")
def stop_run(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Send nothing more; what is on its way is finished as a step."""

    def act() -> None:
        parts.workflow.stop_run(number, person=visitor.id, reason=form.get("reason", ""))

    return _perform_and_redirect(request, parts, visitor, number, act, "stopped")


@router.post("/undo")
def request_undo(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Ask for the undo, and go to the run that it is."""

    def act() -> int:
        return parts.workflow.request_undo(
            number,
            person=visitor.id,
            origin=RequestOrigin("web", user=visitor.id),
            reason=form.get("reason", ""),
        ).id

    return _perform_and_redirect(request, parts, visitor, number, act, "requested")


@router.post("/break-glass")
def activate_break_glass(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Go through a freeze and without approvals, with the plan whose digest was on the page."""

    breaking, reason = parts.workflow.break_glass, form.get("reason", "")

    def act() -> None:
        digest = form.get("digest", "")
        try:
            breaking.activate_break_glass(
                number,
                person=visitor.id,
                session=visitor.session_token,
                digest=digest,
                reason=reason,
            )
        except StepUpRequired:
            # What was typed is there again when they come back with it.
            breaking.request_break_glass(number, person=visitor.id, reason=reason)
            raise

    return _perform_and_redirect(request, parts, visitor, number, act, "broken")


@router.post("/review")
def review_break_glass(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Record what somebody else says of the glass that was broken."""

    def act() -> None:
        parts.workflow.break_glass.review_break_glass(
            number, person=visitor.id, findings=form.get("words", "")
        )

    return _perform_and_redirect(request, parts, visitor, number, act, "reviewed")


@router.post("/settle")
def resolve_run(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Record how an unknown run ended, as its owner found it on the host."""

    def act() -> None:
        ending = form.get("ending", "")
        if ending not in {"succeeded", "failed"}:
            raise InvalidRequestError("choose whether it was done or not")
        parts.workflow.resolve_run(
            number,
            person=visitor.id,
            succeeded=ending == "succeeded",
            reason=form.get("why", ""),
        )

    return _perform_and_redirect(request, parts, visitor, number, act, "settled")


def _perform_and_redirect(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    number: int,
    action: Callable[[], int | None],
    outcome: str,
) -> Response:
    """Do it and show the run anew, or show the run with the reason why not."""
    try:
        onward = action() or number
    except StepUpRequired:
        return RedirectResponse(f"/step-up?next=/runs/{number}", 303)
    except REFUSALS as no:
        return render_run_page(
            request, parts, visitor, number, status=get_http_status(no), alert=str(no)
        )
    return RedirectResponse(f"/runs/{onward}?done={outcome}", 303)


def render_run_page(  # noqa: PLR0913 - what stands on top of it, by name
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
    verification_result: RunVerification | None = None,
) -> Response:
    """Draw it all as it is now. proof: what was just verified."""
    with parts.database.reading(visitor.view_rights) as tx:
        view = _build_view(tx, number, visitor)
    shown = _list_variables(view, visitor) | {
        "alert": alert,
        "notice": notice,
        "proof": verification_result,
    }
    return render_page(request, "run.html", status=status, **shown)


def _build_view(tx: Transaction, number: int, visitor: Visitor) -> RunView:
    return build_run_view(tx, number, visitor.policy, Viewer(visitor.id, visitor.session_token))


def _list_variables(view: RunView, visitor: Visitor) -> dict[str, Any]:
    """Return what the templates of the page draw."""
    run = view.run
    parts = view.children
    return {
        "view": view,
        "run": run,
        "timeline": build_run_events(view.entries, visitor.get_person_name),
        "entries": view.entries[::-1],
        "now": view.now,
        "fan": build_fanout_chart(parts, started=run.started_at, ended=run.ended_at, now=view.now)
        if parts
        else None,
        "stamp": _compute_stamp(view),
        "stamp_of_rest": _compute_stamp_without_hosts(view),
        "hosts_drawn": _get_hosts_display(view),
        "blanks": _list_editable_fields(run),
        "again": _build_resubmit_url(run),
        "streamed": False,
        "proposals": describe_proposals(view.proposals),
    }


def _compute_stamp(view: RunView) -> str:
    """Return short digits that differ whenever the page would show something else."""
    parts = [(part.id, part.version) for part in view.children]
    return f"{_compute_stamp_without_hosts(view)}-{_hash_value(parts)}"


def _compute_stamp_without_hosts(view: RunView) -> str:
    """Return short digits that differ whenever all but its hosts would show something else."""
    head = view.entries[-1].hash if view.entries else ""
    seen = (
        view.run.version,
        head,
        len(view.decisions),
        view.lock,
        view.allowed_actions,
        view.proposals,
    )
    return _hash_value((*seen, view.is_stepped_up))


def _hash_value(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _get_hosts_display(view: RunView) -> str:
    """Return "before" until the run has started: until then its hosts wait for people."""
    return "begun" if view.run.started_at else "before"


def _list_editable_fields(run: Run) -> list[tuple[request_form.FormField, str]]:
    """Return what of a request can be edited, with its values."""
    known = load_catalogue().get(run.runbook)
    if known is None:
        return []
    return [
        (blank, run.values.get(blank.name, blank.default))
        for blank in request_form.list_form_fields(known)
        if blank.name != "host"
    ]


def _build_resubmit_url(run: Run) -> str:
    """Return where the same is asked for once more, with its values filled in; "" if nowhere."""
    if run.undo_of is not None:
        return f"/runs/{run.undo_of}#undo"
    if resubmit.get_resubmit_refusal(run):
        return ""
    return f"/ask/form?{urlencode({'runbook': run.runbook, **resubmit.get_resubmit_values(run)})}"
