"""Verify the change log entries of one run."""

from fastapi import APIRouter, Request, Response

from bot.audit import run_proof
from bot.web.auth import CurrentUser
from bot.web.deps import WebDeps
from bot.web.run import RunIdPath, render_run_page

router = APIRouter(prefix="/runs/{number}")


@router.post("/verify")
def verify_run_entries(
    request: Request, deps: WebDeps, user: CurrentUser, number: RunIdPath
) -> Response:
    """Verify the entries of a run. A POST, so that only the button starts this work."""
    with deps.database.reading(user.view_rights) as tx:
        result = run_proof.verify_run(tx, number)
    return render_run_page(request, deps, user, number, verification_result=result)
