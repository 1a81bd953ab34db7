"""The entries of one run, verified at the press of a button."""

from fastapi import APIRouter, Request, Response

from bot.audit import run_proof
from bot.web.auth import Visiting
from bot.web.deps import Here
from bot.web.run import Number, whole_page

router = APIRouter(prefix="/runs/{number}")


@router.post("/verify")
def verify(request: Request, parts: Here, visitor: Visiting, number: Number) -> Response:
    """Recompute the run's entries. A POST, so that nothing but a button does that work."""
    with parts.database.reading(visitor.sight) as tx:
        found = run_proof.verify_run(tx, number)
    return whole_page(request, parts, visitor, number, proof=found)
