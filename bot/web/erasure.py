"""Erasure page of a run: one person requests to erase its output, an owner confirms."""

from collections.abc import Mapping
from functools import partial

from fastapi import APIRouter, Response

from bot.audit import output
from bot.audit.output import StoredOutput
from bot.db import runs
from bot.queries import erasure
from bot.web.visit import IdPath, Visit, VisitOfPage, add_action
from connectors.errors import DomainError

router = APIRouter(prefix="/runs/{number}/erase")

_DONE_NOTICES: Mapping[str, str] = {
    "requested": "Erasure requested. Nothing is erased until an owner of the area confirms it.",
    "declined": "Declined. Nothing is erased, and the requester is notified.",
    "erased": "Erased permanently. The change log keeps who, the reason and the hashes.",
}


@router.get("")
def show_erasure(visit: Visit, number: IdPath) -> Response:
    """Show the output to erase and the pending request."""
    return _render_page(visit, number)


def _render_page(
    visit: VisitOfPage, number: int, *, refusal: DomainError | None = None
) -> Response:
    with visit.read_viewable() as tx:
        run = runs.get_run(tx, number)
        preview = erasure.preview_erasure(tx, run)
    asked = preview.request
    return visit.render(
        "erasure.html",
        refusal=refusal,
        notice=_DONE_NOTICES.get(visit.done, ""),
        run=run,
        erasure_request=asked,
        declined=preview.declined,
        digest=preview.digest,
        outputs=[(stored, _format_output(stored)) for stored in preview.outputs],
        refusal_to_confirm=erasure.get_confirmation_refusal(visit.policy, run, asked, visit.person)
        if asked
        else "",
    )


_action = partial(add_action, router, page="/runs/{number}/erase", render=_render_page)


@_action("")
def request_erasure(visit: Visit, number: IdPath) -> str:
    visit.service.erasure.request_erasure(
        number, person=visit.person, reason=visit.reason, source="web"
    )
    return f"/runs/{number}/erase?done=requested"


@_action("/confirm")
def confirm_erasure(visit: Visit, number: IdPath) -> str:
    """Erase the output whose digest is in the form."""
    digest = visit.form.get("digest", "")
    visit.service.erasure.confirm_erasure(number, person=visit.person, digest=digest)
    return f"/runs/{number}/erase?done=erased"


@_action("/decline")
def decline_erasure(visit: Visit, number: IdPath) -> str:
    """Decline the pending request."""
    visit.service.erasure.decline_erasure(number, person=visit.person, reason=visit.reason)
    return f"/runs/{number}/erase?done=declined"


def _format_output(stored_output: StoredOutput) -> str:
    """Return a stored output as text; a report is stored as JSON."""
    if stored_output.step_number:
        return stored_output.text
    report = output.parse_report(stored_output.text)
    rows = report.table.rows if report.table else ()
    return "\n".join([report.summary, *report.findings, *map("  ".join, rows)])
