"""One run: what was asked, planned, decided, sent and proven, and the buttons to move it on."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit.run_proof import RunProof
from bot.db.database import Transaction
from bot.model import request_form
from bot.model.run import Origin, Run, describe_proposals
from bot.web.auth import Onlooking, Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.fanout_chart import fan
from bot.web.refusals import NOES, status_of
from bot.web.templating import page
from bot.workflow import resubmit
from bot.workflow.approvals import StepUpRequired
from bot.workflow.requests import InvalidRequest
from bot.workflow.run_timeline import list_timeline
from bot.workflow.run_view import RunView, Viewer, build_run_view
from runbooks import load_catalogue

router = APIRouter(prefix="/runs/{number}")

Number = Annotated[int, Path(ge=1, le=2_147_483_647)]

# What the page says after a button, by the word in its address.
_DONE: Mapping[str, str] = {
    "approved": "Your approval is recorded.",
    "denied": "Your no is recorded. Nothing was sent.",
    "countered": "Your values are proposed. The request stays pending until they are accepted.",
    "accepted": "It is yours now, and waits for approval like any other.",
    "withdrawn": "The request is withdrawn. Nothing was sent.",
    "asked": "The undo is asked for. It is planned and approved like any other change.",
    "broken": "The glass is broken. The owners are told, and somebody else reviews it.",
    "reviewed": "Your review is recorded.",
    "stopped": "It is stopped: nothing more is sent for it.",
    "settled": "It is settled, and the host is free again.",
}


@router.get("")
def show(
    request: Request, parts: Here, visitor: Visiting, number: Number, done: str = ""
) -> Response:
    """Show the whole page."""
    return whole_page(request, parts, visitor, number, notice=_DONE.get(done, ""))


@router.get("/live")
def live(
    request: Request,
    parts: Here,
    visitor: Onlooking,
    number: Number,
    seen: str = "",
    streamed: str = "",
) -> Response:
    """Answer with the part of the page that moves, or with nothing if nothing has moved.

    streamed: how hosts are drawn on a page that its stream tells of each; they stay as they are.
    """
    with parts.database.reading(visitor.sight) as tx:
        view = _build_view(tx, number, visitor)
    stay = streamed == _how_hosts_are_drawn(view) and not view.run.over
    if seen in {_stamp(view), _stamp_of_rest(view) if stay else _stamp(view)}:
        return Response(status_code=204)
    return page(request, "run_moved.html", **_list_variables(view, visitor) | {"streamed": stay})


@router.post("/approve")
def approve(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Turn a key for the plan whose digest was on the page."""

    def act() -> None:
        parts.workflow.approve(
            number,
            person=visitor.id,
            digest=form.get("digest", ""),
            reason=form.get("reason", ""),
            session=visitor.session,
        )

    return _done(request, parts, visitor, number, act, "approved")


@router.post("/deny")
def deny(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    def act() -> None:
        parts.workflow.deny(number, person=visitor.id, reason=form.get("reason", ""))

    return _done(request, parts, visitor, number, act, "denied")


@router.post("/counter")
def counter(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Propose other values, and go to the run that has them."""

    def act() -> int:
        typed = {
            name.removeprefix("field-"): value
            for name, value in form.items()
            if name.startswith("field-")
        }
        return parts.workflow.counter(
            number, person=visitor.id, changes=typed, reason=form.get("reason", "")
        ).id

    return _done(request, parts, visitor, number, act, "countered")


@router.post("/accept")
def accept(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Take over the values that an approver proposes."""

    def act() -> None:
        parts.workflow.accept(number, person=visitor.id, digest=form.get("digest", ""))

    return _done(request, parts, visitor, number, act, "accepted")


@router.post("/withdraw")
def withdraw(request: Request, parts: Here, visitor: Visiting, number: Number) -> Response:
    def act() -> None:
        parts.workflow.withdraw(number, person=visitor.id)

    return _done(request, parts, visitor, number, act, "withdrawn")


@router.post("/stop")
def stop(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Send nothing more; what is on its way is finished as a step."""

    def act() -> None:
        parts.workflow.stop(number, person=visitor.id, why=form.get("reason", ""))

    return _done(request, parts, visitor, number, act, "stopped")


@router.post("/undo")
def undo(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Ask for the undo, and go to the run that it is."""

    def act() -> int:
        return parts.workflow.undo(
            number,
            person=visitor.id,
            origin=Origin("web", user=visitor.id),
            reason=form.get("reason", ""),
        ).id

    return _done(request, parts, visitor, number, act, "asked")


@router.post("/break-glass")
def break_glass(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Go through a freeze and without approvals, with the plan whose digest was on the page."""

    breaking, reason = parts.workflow.breaking, form.get("reason", "")

    def act() -> None:
        digest = form.get("digest", "")
        try:
            breaking.shatter(
                number, person=visitor.id, session=visitor.session, digest=digest, reason=reason
            )
        except StepUpRequired:
            # What was typed is there again when they come back with it.
            breaking.want(number, person=visitor.id, reason=reason)
            raise

    return _done(request, parts, visitor, number, act, "broken")


@router.post("/review")
def review(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Record what somebody else says of the glass that was broken."""

    def act() -> None:
        parts.workflow.breaking.review(number, person=visitor.id, words=form.get("words", ""))

    return _done(request, parts, visitor, number, act, "reviewed")


@router.post("/settle")
def settle(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Record how an unknown run ended, as its owner found it on the host."""

    def act() -> None:
        ending = form.get("ending", "")
        if ending not in {"succeeded", "failed"}:
            raise InvalidRequest("choose whether it was done or not")
        parts.workflow.settle(
            number,
            person=visitor.id,
            succeeded=ending == "succeeded",
            why=form.get("why", ""),
        )

    return _done(request, parts, visitor, number, act, "settled")


def _done(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    number: int,
    act: Callable[[], int | None],
    word: str,
) -> Response:
    """Do it and show the run anew, or show the run with the reason why not."""
    try:
        onward = act() or number
    except StepUpRequired:
        return RedirectResponse(f"/step-up?next=/runs/{number}", 303)
    except NOES as no:
        return whole_page(request, parts, visitor, number, status=status_of(no), alert=str(no))
    return RedirectResponse(f"/runs/{onward}?done={word}", 303)


def whole_page(  # noqa: PLR0913 - what stands on top of it, by name
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
    proof: RunProof | None = None,
) -> Response:
    """Draw it all as it is now. proof: what was just verified."""
    with parts.database.reading(visitor.sight) as tx:
        view = _build_view(tx, number, visitor)
    shown = _list_variables(view, visitor) | {"alert": alert, "notice": notice, "proof": proof}
    return page(request, "run.html", status=status, **shown)


def _build_view(tx: Transaction, number: int, visitor: Visitor) -> RunView:
    return build_run_view(tx, number, visitor.policy, Viewer(visitor.id, visitor.session))


def _list_variables(view: RunView, visitor: Visitor) -> dict[str, Any]:
    """Return what the templates of the page draw."""
    run = view.run
    parts = view.children
    return {
        "view": view,
        "run": run,
        "timeline": list_timeline(view.entries, visitor.name),
        "entries": view.entries[::-1],
        "now": view.now,
        "fan": fan(parts, started=run.started, ended=run.ended, now=view.now) if parts else None,
        "stamp": _stamp(view),
        "stamp_of_rest": _stamp_of_rest(view),
        "hosts_drawn": _how_hosts_are_drawn(view),
        "blanks": _blanks(run),
        "again": _again(run),
        "streamed": False,
        "proposals": describe_proposals(view.proposals),
    }


def _stamp(view: RunView) -> str:
    """Return short digits that differ whenever the page would show something else."""
    parts = [(part.id, part.version) for part in view.children]
    return f"{_stamp_of_rest(view)}-{_digits(parts)}"


def _stamp_of_rest(view: RunView) -> str:
    """Return short digits that differ whenever all but its hosts would show something else."""
    head = view.entries[-1].hash if view.entries else ""
    seen = (view.run.version, head, len(view.votes), view.lock, view.powers, view.proposals)
    return _digits((*seen, view.stepped_up))


def _digits(seen: object) -> str:
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def _how_hosts_are_drawn(view: RunView) -> str:
    """Return "before" until the run has started: until then its hosts wait for people."""
    return "begun" if view.run.started else "before"


def _blanks(run: Run) -> list[tuple[request_form.FormField, str]]:
    """Return what of a request can be edited, with its values."""
    known = load_catalogue().get(run.words)
    if known is None:
        return []
    return [
        (blank, run.fields.get(blank.name, blank.default))
        for blank in request_form.list_form_fields(known)
        if blank.name != "host"
    ]


def _again(run: Run) -> str:
    """Return where the same is asked for once more, with its values filled in; "" if nowhere."""
    if run.undo_of is not None:
        return f"/runs/{run.undo_of}#undo"
    if resubmit.why_not_resubmit(run):
        return ""
    return f"/ask/form?{urlencode({'runbook': run.words, **resubmit.resubmit_values(run)})}"
