"""Plans: read the hosts and show what a change would do, and run nothing."""

from dataclasses import replace
from functools import partial

from fastapi import APIRouter, Request, Response

from bot.api import records, schemas
from bot.api.auth import RequestCaller
from bot.api.deps import Parts
from bot.api.long_poll import LongPollRoute, PendingResponse, Wait, wait_for_run
from bot.api.schemas_in import RunRequestIn
from bot.model.run import is_at_rest

router = APIRouter(prefix="/plans", tags=["runs"], route_class=LongPollRoute)


@router.post(
    "", operation_id="planRun", summary="Plan a change on one or more hosts", status_code=202
)
def plan_run(
    request: Request,
    response: Response,
    parts: Parts,
    caller: RequestCaller,
    body: RunRequestIn,
    wait: Wait = 0,
) -> schemas.RunDetailsOut:
    """Nothing runs. The plan expires after 15 minutes.

    With `wait`, the response holds the plan, its digest, and who would approve it;
    `POST /runs/{number}/request` with the digest requests it.
    """
    pattern, requests = body.parse(caller.policy)
    terms = replace(body.build_terms(caller), plan_only=True)
    run = parts.service.request_on_hosts(requests, terms, host_pattern=pattern)
    if not is_at_rest(run.state):
        read_run = partial(records.get_run_details, parts, caller, run.id)
        wait_for_run(request, PendingResponse(run.id, wait, read_run))
    return records.respond_with_new_run(parts, caller, run, response)
