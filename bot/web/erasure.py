"""Erasing what hosts answered in a run: one person asks here, and an owner confirms."""

from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from bot.audit import output
from bot.audit.output import StoredOutput
from bot.db import runs
from bot.web.auth import Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.refusals import NOES, status_of
from bot.web.run import Number
from bot.web.templating import page
from bot.workflow import erasure

router = APIRouter(prefix="/runs/{number}/erase")

_DONE: Mapping[str, str] = {
    "asked": "It is asked for. Nothing is erased before an owner of the area confirms it.",
    "declined": "It is declined, and nothing is erased. Who asked is told why.",
    "erased": "It is erased for good. The log keeps who, why, and the hashes.",
}


@router.get("")
def show(
    request: Request, parts: Here, visitor: Visiting, number: Number, done: str = ""
) -> Response:
    """Show what would be erased, word for word, and who asks for it."""
    return _page(request, parts, visitor, number, notice=_DONE.get(done, ""))


@router.post("")
def ask(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    def act() -> None:
        why = form.get("reason", "")
        parts.workflow.erasing.ask(number, person=visitor.id, why=why, door="web")

    return _done(request, parts, visitor, number, act, "asked")


@router.post("/confirm")
def confirm(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Erase what the page showed whose digest the form holds."""

    def act() -> None:
        digest = form.get("digest", "")
        parts.workflow.erasing.confirm(number, person=visitor.id, digest=digest)

    return _done(request, parts, visitor, number, act, "erased")


@router.post("/decline")
def decline(
    request: Request, parts: Here, visitor: Visiting, number: Number, form: Filled
) -> Response:
    """Say no to it, and why."""

    def act() -> None:
        why = form.get("reason", "")
        parts.workflow.erasing.decline(number, person=visitor.id, why=why)

    return _done(request, parts, visitor, number, act, "declined")


def _done(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    number: int,
    act: Callable[[], None],
    word: str,
) -> Response:
    try:
        act()
    except NOES as no:
        return _page(request, parts, visitor, number, status=status_of(no), alert=str(no))
    return RedirectResponse(f"/runs/{number}/erase?done={word}", 303)


def _page(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    number: int,
    *,
    status: int = 200,
    alert: str = "",
    notice: str = "",
) -> Response:
    with parts.database.reading(visitor.sight) as tx:
        run = runs.get_run(tx, number)
        found = erasure.preview_erasure(tx, run)
    asked = found.asked
    return page(
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
        answers=_worded(found.answers),
        why_not=erasure.why_not_confirm(visitor.policy, run, asked, visitor.id) if asked else "",
    )


def _worded(answers: Sequence[StoredOutput]) -> list[tuple[StoredOutput, str]]:
    return [(kept, _words(kept)) for kept in answers]


def _words(kept: StoredOutput) -> str:
    """Return an answer as people read it: a report is kept as JSON."""
    if kept.n:
        return kept.text
    report = output.parse_report(kept.text)
    rows = report.table.rows if report.table else ()
    return "\n".join([report.summary, *report.findings, *map("  ".join, rows)])
