"""Erasure page of a run: one person requests to erase its output, an owner confirms."""

from collections.abc import Mapping
from functools import partial

from fastapi import APIRouter, Response

from bot.db import outputs, runs
from bot.db.outputs import StoredOutput
from bot.features.erasure.actions import ErasureActions
from bot.features.erasure.readings import get_confirmation_refusal, preview_erasure
from bot.model.run import Run
from bot.queries.run_view import RunView
from bot.web.pages import PageLink, Pages
from bot.web.visit import IdPath, Visit, VisitOfPage, add_action
from connectors.errors import DomainError

router = APIRouter(prefix="/runs/{number}/erase")


def _find_erasure_page(run: Run, view: RunView) -> str:
    """Return where the output of a run can be erased; "" if it has ended without any."""
    has_output = run.is_ended and (run.report or view.step_records)
    return f"/runs/{run.id}/erase" if has_output else ""


PAGES = Pages(router, links=[PageLink("run log", "Erase output…", _find_erasure_page)])

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
        preview = preview_erasure(tx, run)
    asked = preview.request
    return visit.render(
        "erasure/erasure.html",
        refusal=refusal,
        notice=_DONE_NOTICES.get(visit.done, ""),
        run=run,
        erasure_request=asked,
        declined=preview.declined,
        digest=preview.digest,
        outputs=[(stored, _format_output(stored)) for stored in preview.outputs],
        refusal_to_confirm=(
            get_confirmation_refusal(visit.policy, run, asked, visit.person) if asked else ""
        ),
    )


_action = partial(add_action, router, page="/runs/{number}/erase", render=_render_page)


@_action("")
def request_erasure(visit: Visit, number: IdPath) -> str:
    visit.service.bind(ErasureActions).request_erasure(
        number, person=visit.person, reason=visit.reason, source="web"
    )
    return f"/runs/{number}/erase?done=requested"


@_action("/confirm")
def confirm_erasure(visit: Visit, number: IdPath) -> str:
    """Erase the output whose digest is in the form."""
    digest = visit.form.get("digest", "")
    visit.service.bind(ErasureActions).confirm_erasure(number, person=visit.person, digest=digest)
    return f"/runs/{number}/erase?done=erased"


@_action("/decline")
def decline_erasure(visit: Visit, number: IdPath) -> str:
    """Decline the pending request."""
    visit.service.bind(ErasureActions).decline_erasure(
        number, person=visit.person, reason=visit.reason
    )
    return f"/runs/{number}/erase?done=declined"


def _format_output(stored_output: StoredOutput) -> str:
    """Return a stored output as text; a report is stored as JSON."""
    if stored_output.step_number:
        return stored_output.text
    report = outputs.parse_report(stored_output.text)
    rows = report.table.rows if report.table else ()
    return "\n".join([report.summary, *report.findings, *map("  ".join, rows)])
