"""Erasure page of a run: one person requests to erase its output, an owner confirms."""

from collections.abc import Mapping, Sequence
from functools import partial

from fastapi import APIRouter, Request, Response

from bot.audit import output
from bot.audit.output import StoredOutput
from bot.db import runs
from bot.queries import erasure
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import perform_and_redirect
from bot.web.run import RunIdPath
from bot.web.templating import render_page, start_sentence

router = APIRouter(prefix="/runs/{number}/erase")

_DONE_NOTICES: Mapping[str, str] = {
    "requested": "Erasure requested. Nothing is erased until an owner of the area confirms it.",
    "declined": "Declined. Nothing is erased, and the requester is notified.",
    "erased": "Erased permanently. The change log keeps who, the reason and the hashes.",
}


@router.get("")
def show_erasure(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, done: str = ""
) -> Response:
    """Show the output to erase and the pending request."""
    return _render_page(request, deps, user, number, notice=_DONE_NOTICES.get(done, ""))


@router.post("")
def request_erasure(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    def act() -> None:
        reason = form.get("reason", "")
        deps.service.erasure.request_erasure(number, person=user.id, reason=reason, source="web")

    render = partial(_render_page, request, deps, user, number)
    return perform_and_redirect(act, render, page=f"/runs/{number}/erase", outcome="requested")


@router.post("/confirm")
def confirm_erasure(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Erase the output whose digest is in the form."""

    def act() -> None:
        digest = form.get("digest", "")
        deps.service.erasure.confirm_erasure(number, person=user.id, digest=digest)

    render = partial(_render_page, request, deps, user, number)
    return perform_and_redirect(act, render, page=f"/runs/{number}/erase", outcome="erased")


@router.post("/decline")
def decline_erasure(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath, form: FormValues
) -> Response:
    """Decline the pending request."""

    def act() -> None:
        reason = form.get("reason", "")
        deps.service.erasure.decline_erasure(number, person=user.id, reason=reason)

    render = partial(_render_page, request, deps, user, number)
    return perform_and_redirect(act, render, page=f"/runs/{number}/erase", outcome="declined")


def _render_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
) -> Response:
    with deps.database.reading(user.view_rights) as tx:
        run = runs.get_run(tx, number)
        preview = erasure.preview_erasure(tx, run)
    erasure_request = preview.request
    return render_page(
        request,
        "erasure.html",
        status=status,
        # The command line shows these texts after a name; here they begin a sentence.
        alert=start_sentence(f"{alert}.") if alert else "",
        notice=notice,
        run=run,
        erasure_request=erasure_request,
        details=erasure_request.facts if erasure_request else {},
        declined=preview.declined,
        digest=preview.digest,
        outputs=_list_readable_outputs(preview.outputs),
        refusal=erasure.get_confirmation_refusal(user.policy, run, erasure_request, user.id)
        if erasure_request
        else "",
    )


def _list_readable_outputs(outputs: Sequence[StoredOutput]) -> list[tuple[StoredOutput, str]]:
    return [(stored, _format_output(stored)) for stored in outputs]


def _format_output(stored_output: StoredOutput) -> str:
    """Return a stored output as text; a report is stored as JSON."""
    if stored_output.step_number:
        return stored_output.text
    report = output.parse_report(stored_output.text)
    rows = report.table.rows if report.table else ()
    return "\n".join([report.summary, *report.findings, *map("  ".join, rows)])
