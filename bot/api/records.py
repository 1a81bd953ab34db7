"""One run with everything that belongs to it, read in one consistent state."""

from fastapi import Response

from bot.api.auth import Caller
from bot.api.deps import ApiParts
from bot.api.schemas import RunDetailsOut
from bot.model.run import Run
from bot.queries.run_view import build_run_view


def get_run_details(parts: ApiParts, caller: Caller, run_id: int) -> RunDetailsOut:
    """Return a run with its plan and history. Raises NoSuchRun."""
    with parts.database.reading(caller.view_rights) as tx:
        view = build_run_view(tx, run_id, caller.policy)
    return RunDetailsOut.from_view(view, parts.base_url)


def respond_with_new_run(
    parts: ApiParts, caller: Caller, run: Run, response: Response
) -> RunDetailsOut:
    """Return a run that was just requested, and set the Location header to its address."""
    response.headers["Location"] = f"/api/v1/runs/{run.id}"
    return get_run_details(parts, caller, run.id)
