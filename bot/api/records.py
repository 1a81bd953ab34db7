"""Records: one run with all that is known of it, read in one consistent state."""

from fastapi import Response

from bot.api import schemas
from bot.api.auth import Caller
from bot.api.deps import ApiParts
from bot.model.run import Run
from bot.workflow.run_view import build_run_view


def in_full(parts: ApiParts, caller: Caller, number: int) -> schemas.RunDetails:
    """Raises NoSuchRun."""
    with parts.database.reading(caller.sight) as tx:
        view = build_run_view(tx, number, caller.policy)
    return schemas.RunDetails.from_view(view, parts.base_url)


def respond_with_request(
    parts: ApiParts, caller: Caller, run: Run, answer: Response
) -> schemas.RunDetails:
    """Return a run that was just asked for, and have the answer say where it is."""
    answer.headers["Location"] = f"/api/v1/runs/{run.id}"
    return in_full(parts, caller, run.id)
