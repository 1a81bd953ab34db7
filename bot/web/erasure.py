"""Erasing what hosts answered in a run: one person asks here, and an owner confirms."""

from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit import output
from bot.audit.output import StoredOutput
from bot.db import runs
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.refusals import REFUSALS, get_http_status
from bot.web.run import RunIdPath
from bot.web.templating import render_page
from bot.workflow import erasure

router = APIRouter(prefix="/runs/{number}/erase")

_DONE_NOTICES: Mapping[str, str] = {
    "requested": "It is asked for. Nothing is erased before an owner of the area confirms it.",
    "declined": "It is declined, and nothing is erased. Who asked is told why.",
    "erased": "It is erased for good. The log keeps who, why, and the hashes.",
}


@router.get("")
def show_erasure(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, done: str = ""
) -> Response:
    """Show what would be erased, word for word, and who asks for it."""
    return _render_page(request, parts, visitor, number, notice=_DONE_NOTICES.get(done, ""))


@router.post("")
def request_erasure(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    def act() -> None:
        why = form.get("reason", "")
        parts.workflow.erasure.request_erasure(number, person=visitor.id, reason=why, source="web")

    return _perform_and_redirect(request, parts, visitor, number, act, "requested")


@router.post("/confirm")
def confirm_erasure(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Erase what the page showed whose digest the form holds."""

    def act() -> None:
        digest = form.get("digest", "")
        parts.workflow.erasure.confirm_erasure(number, person=visitor.id, digest=digest)

    return _perform_and_redirect(request, parts, visitor, number, act, "erased")


@router.post("/decline")
def decline_erasure(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath, form: FormValues
) -> Response:
    """Say no to it, and why."""

    def act() -> None:
        why = form.get("reason", "")
        parts.workflow.erasure.decline_erasure(number, person=visitor.id, reason=why)

    return _perform_and_redirect(request, parts, visitor, number, act, "declined")


def _perform_and_redirect(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    number: int,
    action: Callable[[], None],
    outcome: str,
) -> Response:
    try:
        action()
    except REFUSALS as no:
        return _render_page(
            request, parts, visitor, number, status=get_http_status(no), alert=str(no)
        )
    return RedirectResponse(f"/runs/{number}/erase?done={outcome}", 303)


def _render_page(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        run = runs.get_run(tx, number)
        found = erasure.preview_erasure(tx, run)
    asked = found.request
    return render_page(
        request,
        "erasure.html",
        status=status,
        # Refusals of the workflow go on after a name on the command line; here they stand alone.
        alert=alert[:1].upper() + alert[1:],
        notice=notice,
        run=run,
        asked=asked,
        wanted=asked.facts if asked else {},
        declined=found.declined,
        digest=found.digest,
        answers=_list_readable_outputs(found.outputs),
        why_not=erasure.get_confirmation_refusal(visitor.policy, run, asked, visitor.id)
        if asked
        else "",
    )


def _list_readable_outputs(outputs: Sequence[StoredOutput]) -> list[tuple[StoredOutput, str]]:
    return [(kept, _format_output(kept)) for kept in outputs]


def _format_output(stored_output: StoredOutput) -> str:
    """Return an answer as people read it: a report is kept as JSON."""
    if stored_output.step_number:
        return stored_output.text
    report = output.parse_report(stored_output.text)
    rows = report.table.rows if report.table else ()
    return "\n".join([report.summary, *report.findings, *map("  ".join, rows)])
