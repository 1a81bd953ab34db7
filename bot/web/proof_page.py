"""The entries of one run, verified at the press of a button."""

from fastapi import APIRouter, Request, Response

from bot.store import proof
from bot.web.parts import Here
from bot.web.run_page import Number, whole_page
from bot.web.visitor import Visiting

router = APIRouter(prefix="/runs/{number}")


@router.post("/verify")
def verify(request: Request, parts: Here, visitor: Visiting, number: Number) -> Response:
    """Recompute the run's entries. A POST, so that nothing but a button does that work."""
    with parts.database.reading(visitor.sight) as tx:
        found = proof.of_run(tx, number)
    return whole_page(request, parts, visitor, number, proof=found)
