"""What several routes do: return a run with its details, record a request or a used token."""

from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import urlencode

from fastapi import Request, Response

from bot.api.auth import Caller
from bot.api.deps import ApiParts
from bot.api.schemas import PlanDocumentOut, RunDetailsOut
from bot.audit import change_log, events
from bot.audit.change_log import EntryDraft
from bot.db import runs
from bot.model.errors import TooLate
from bot.model.run import Run
from bot.queries.run_view import Viewer, build_run_view


def build_next_link(request: Request, before: int) -> str:
    """Return the address of the next page of a list, with the same filters."""
    query = [pair for pair in request.query_params.multi_items() if pair[0] != "before"]
    return f"{request.url.path}?{urlencode([*query, ('before', str(before))])}"


def get_run_details(parts: ApiParts, caller: Caller, run_id: int) -> RunDetailsOut:
    """Return a run with its plan and history. Raises NoSuchRun."""
    with parts.database.reading(caller.view_rights) as tx:
        view = build_run_view(tx, run_id, caller.policy, Viewer(caller.id))
    return RunDetailsOut.from_view(view, parts.base_url)


def get_plan_document(parts: ApiParts, caller: Caller, run_id: int) -> PlanDocumentOut:
    """Return the plan of a run as it is signed. Raises NoSuchRun, and TooLate without a plan."""
    with parts.database.reading(caller.view_rights) as tx:
        run = runs.get_run(tx, run_id)
    if run.plan is None:
        raise TooLate(f"Run {run_id} has no plan: only a change that was planned has one")
    return PlanDocumentOut.from_plan(run.plan)


@contextmanager
def record_token_use(
    caller: Caller,
    action: str,
    *,
    run: int,
    host: str = "",
    key: str = "",
    schedule: int | None = None,
) -> Generator[None]:
    """Record which token was used, together with the next entry that is appended.

    key, schedule: what the action is about, apart from the run.
    """
    used = events.TokenUsed(token=caller.token.prefix, action=action, key=key, schedule=schedule)
    draft = EntryDraft(used, run, caller.id, host)
    with change_log.announce_with_next_entry(draft):
        yield


def respond_with_new_run(
    parts: ApiParts, caller: Caller, run: Run, response: Response
) -> RunDetailsOut:
    """Return a run that was just requested, and set the Location header to its address."""
    response.headers["Location"] = f"/api/v1/runs/{run.id}"
    return get_run_details(parts, caller, run.id)
