"""The entries of one run, verified at the press of a button."""

from fastapi import APIRouter, Request, Response

from bot.audit import run_proof
from bot.web.auth import CurrentVisitor
from bot.web.deps import WebDeps
from bot.web.run import RunIdPath, render_run_page

router = APIRouter(prefix="/runs/{number}")


@router.post("/verify")
def verify_run_entries(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, number: RunIdPath
) -> Response:
    """Recompute the run's entries. A POST, so that nothing but a button does that work."""
    with parts.database.reading(visitor.view_rights) as tx:
        found = run_proof.verify_run(tx, number)
    return render_run_page(request, parts, visitor, number, verification_result=found)
