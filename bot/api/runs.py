"""Runs: search, plan, request, decide, stop and undo."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from bot.api import records, schemas
from bot.api.auth import ApproveCaller, Caller, ReadCaller, RequestCaller, StopCaller
from bot.api.deps import ApiParts, Parts
from bot.api.long_poll import (
    LongPollRoute,
    PendingResponse,
    Wait,
    render_response,
    wait_for_run,
)
from bot.api.preview import PreviewOut, preview_own_request
from bot.api.schemas_in import (
    AcceptanceIn,
    ApprovalIn,
    CounterProposalIn,
    DenialIn,
    InputModel,
    QuestionIn,
    ReasonIn,
    ReassignmentIn,
    RepeatIn,
    ResolutionIn,
    ReviewIn,
    RunId,
    RunRequestIn,
    RunStatus,
    SignatureIn,
    Timestamp,
    UndoIn,
    Word,
    to_microseconds,
)
from bot.db import runs
from bot.db.search import RunFilter, search_runs
from bot.db.search_words import parse_search
from bot.model import resubmit
from bot.model.run import RUN_STATUSES, is_at_rest
from bot.model.sequence import UndoSelection
from bot.queries.unknown_filters import describe_unknown_names
from runbooks import AnyRunbook

router = APIRouter(tags=["runs"], route_class=LongPollRoute)


class RunQuery(InputModel):
    """Which runs to list."""

    host: Word | None = Field(None, description="A name, or a pattern such as `web*`.")
    person: Word | None = Field(None, description="The requester.")
    runbook: Word | None = Field(None, description="Name of the runbook.")
    state: list[RunStatus] = Field(
        default_factory=list[str],
        max_length=len(RUN_STATUSES),
        description="State of the run; repeatable.",
    )
    since: Timestamp | None = Field(None, description="Only runs requested at or after this time.")
    until: Timestamp | None = Field(
        None, description="Only runs requested at or before this time."
    )
    area: Word | None = Field(None, description="Area of the hosts.")
    search: Word | None = Field(None, description="Words that all occur in the run.")
    before: int | None = Field(
        None,
        ge=1,
        le=2_147_483_647,
        description="Only runs with a lower number; `next` of a page sets it.",
    )
    limit: int = Field(50, ge=1, le=200, description="Number of runs on a page.")

    @property
    def filter(self) -> RunFilter:
        return RunFilter(
            host=self.host and self.host.lower(),
            person=self.person and self.person.lower(),
            runbook=self.runbook and " ".join(self.runbook.lower().split()),
            states=frozenset(self.state),
            since=to_microseconds(self.since),
            until=to_microseconds(self.until),
            area=self.area,
            text=parse_search(self.search or ""),
            before=self.before,
        )


class RunPageOut(schemas.OutputModel):
    """One page of runs, newest first."""

    runs: list[schemas.RunOut]
    next: str | None = Field(description="Address of the next page; null on the last.")
    unknown_filters: dict[str, str] = Field(
        description="If no run matches: the filters that name a person, host, … that neither "
        "the policy nor any run has."
    )


class RequestResultOut(schemas.OutputModel):
    """The run of a request, and what the policy requires for it."""

    run: schemas.RunOut
    preview: PreviewOut
    report: Annotated[
        schemas.ReportOut | None,
        Field(description="Result of a check that ended within `wait`."),
    ] = None


class SelectionIn(UndoIn):
    """Which runs to undo: those of a person, of an API token, or of a schedule."""

    person: Word | None = Field(None, description="Id of the person who requested them.")
    token: Word | None = Field(None, description="Prefix of the API token they came with.")
    schedule: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="Number of the schedule. Without `since`, its last due time."
    )
    since: Timestamp | None = Field(None, description="Only runs that began then or later.")
    until: Timestamp | None = Field(None, description="Only runs that began before. Default: now.")
    area: Word | None = Field(None, description="Only on hosts of this area.")


@router.post(
    "/plans", operation_id="planRun", summary="Plan a change on one or more hosts", status_code=202
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


@router.get("/runs", operation_id="listRuns", summary="List runs, newest first")
def list_runs(
    request: Request, parts: Parts, caller: ReadCaller, query: Annotated[RunQuery, Query()]
) -> RunPageOut:
    with parts.database.reading(caller.view_rights) as tx:
        page = search_runs(tx, query.filter, most=query.limit)
        decisions = runs.list_decisions_on(tx, [run.id for run in page.runs])
        parent_states = runs.get_parent_states(tx, page.runs)
        has_runs = page.runs or page.older
        unknown_filters = (
            {} if has_runs else describe_unknown_names(tx, query.filter, caller.policy)
        )
    return RunPageOut(
        runs=[
            schemas.RunOut.from_run(
                run, decisions.get(run.id, ()), parts.base_url, parent_states.get(run.id)
            )
            for run in page.runs
        ],
        next=records.build_next_link(request, page.older) if page.older else None,
        unknown_filters=unknown_filters,
    )


@router.get("/runs/{number}", operation_id="getRun", summary="Get a run")
def get_run(
    request: Request, parts: Parts, caller: ReadCaller, number: RunId, wait: Wait = 0
) -> schemas.RunDetailsOut:
    read_run = partial(records.get_run_details, parts, caller, number)
    run = read_run()
    if not is_at_rest(run.state):
        wait_for_run(request, PendingResponse(number, wait, read_run))
    return run


@router.get(
    "/runs/{number}/document",
    operation_id="getPlanDocument",
    summary="Get the plan as it is signed",
)
def get_plan_document(parts: Parts, caller: ReadCaller, number: RunId) -> schemas.PlanDocumentOut:
    """The document names each section with its SHA-256. Both are UTF-8 text."""
    return records.get_plan_document(parts, caller, number)


@router.post(
    "/runs",
    operation_id="requestRun",
    summary="Request a run on one or more hosts",
    status_code=202,
    response_model=RequestResultOut,
)
def request_run(
    request: Request, parts: Parts, caller: RequestCaller, body: RunRequestIn, wait: Wait = 0
) -> Response:
    """Record the request and plan it. A run that needs no approval starts immediately."""
    return _request_run(request, parts, caller, body.parse(caller.policy), body, wait)


@router.post("/runs/{number}/approve", operation_id="approveRun", summary="Approve a plan")
def approve_run(
    parts: Parts, caller: ApproveCaller, number: RunId, body: ApprovalIn
) -> schemas.RunDetailsOut:
    """Refused where a rule requires a second factor: approve on the run's web page instead."""
    with _record_token_use(parts, caller, number, "approve"):
        parts.service.approve_run(
            number,
            person=caller.id,
            digest=body.digest,
            reason=body.reason,
            signature=body.signature,
            start_at=to_microseconds(body.start_at),
        )
    return records.get_run_details(parts, caller, number)


@router.post("/runs/{number}/hold", operation_id="holdRun", summary="Hold an approved run")
def hold_run(
    parts: Parts, caller: RequestCaller, number: RunId, body: ReasonIn
) -> schemas.RunDetailsOut:
    """Until it starts. It needs its approvals again; its requester and approvers can do this."""
    with _record_token_use(parts, caller, number, "hold"):
        parts.service.hold_run(number, person=caller.id, reason=body.reason)
    return records.get_run_details(parts, caller, number)


@router.post("/runs/{number}/sign", operation_id="signRequest", summary="Sign your request")
def sign_request(
    parts: Parts, caller: RequestCaller, number: RunId, body: SignatureIn
) -> schemas.RunDetailsOut:
    """For the requester, where `lacks_signed_request`. Approvers sign with their approval."""
    with _record_token_use(parts, caller, number, "sign"):
        parts.service.sign_request(
            number, person=caller.id, digest=body.digest, signature=body.signature
        )
    return records.get_run_details(parts, caller, number)


@router.post("/runs/{number}/deny", operation_id="denyRun", summary="Deny a run")
def deny_run(
    parts: Parts, caller: ApproveCaller, number: RunId, body: DenialIn
) -> schemas.RunDetailsOut:
    """One denial ends the run."""
    with _record_token_use(parts, caller, number, "deny"):
        parts.service.deny_run(number, person=caller.id, reason=body.reason)
    return records.get_run_details(parts, caller, number)


@router.post("/runs/{number}/counter", operation_id="counterRun", summary="Propose other values")
def propose_counter(
    parts: Parts, caller: ApproveCaller, number: RunId, body: CounterProposalIn
) -> schemas.RunDetailsOut:
    """The counter-proposal is a new run, which the requester accepts or withdraws."""
    with _record_token_use(parts, caller, number, "counter"):
        proposal = parts.service.propose_values(
            number, person=caller.id, changed_values=body.values, reason=body.reason
        )
    return records.get_run_details(parts, caller, proposal.id)


@router.post(
    "/runs/{number}/accept", operation_id="acceptRun", summary="Accept a counter-proposal"
)
def accept_counter(
    parts: Parts, caller: RequestCaller, number: RunId, body: AcceptanceIn
) -> schemas.RunDetailsOut:
    with _record_token_use(parts, caller, number, "accept"):
        parts.service.accept_proposal(number, person=caller.id, digest=body.digest)
    return records.get_run_details(parts, caller, number)


@router.post(
    "/runs/{number}/question", operation_id="askQuestion", summary="Ask a question about a run"
)
def ask_question(
    parts: Parts, caller: ApproveCaller, number: RunId, body: QuestionIn
) -> schemas.RunDetailsOut:
    """For a person who can approve the run. It stays pending; the requester is notified."""
    with _record_token_use(parts, caller, number, "question"):
        parts.service.ask_question(number, person=caller.id, text=body.text)
    return records.get_run_details(parts, caller, number)


@router.post(
    "/runs/{number}/answer",
    operation_id="answerQuestion",
    summary="Answer a question about your request",
)
def answer_question(
    parts: Parts, caller: RequestCaller, number: RunId, body: QuestionIn
) -> schemas.RunDetailsOut:
    with _record_token_use(parts, caller, number, "answer"):
        parts.service.answer_question(number, person=caller.id, text=body.text)
    return records.get_run_details(parts, caller, number)


@router.post(
    "/runs/{number}/reassign", operation_id="reassignRun", summary="Ask another approver to decide"
)
def reassign_run(
    parts: Parts, caller: ApproveCaller, number: RunId, body: ReassignmentIn
) -> schemas.RunDetailsOut:
    """The assignee is notified and reminded first. Others who can approve the run still can."""
    with _record_token_use(parts, caller, number, "reassign"):
        parts.service.reassign_run(
            number, person=caller.id, assignee=body.person.lower(), reason=body.reason
        )
    return records.get_run_details(parts, caller, number)


@router.post(
    "/runs/{number}/withdraw", operation_id="withdrawRun", summary="Withdraw your request"
)
def withdraw_run(parts: Parts, caller: RequestCaller, number: RunId) -> schemas.RunDetailsOut:
    with _record_token_use(parts, caller, number, "withdraw"):
        parts.service.withdraw_run(number, person=caller.id)
    return records.get_run_details(parts, caller, number)


@router.post(
    "/runs/{number}/stop", operation_id="stopRun", summary="Stop a run before its next step"
)
def stop_run(
    parts: Parts, caller: StopCaller, number: RunId, body: ReasonIn
) -> schemas.RunDetailsOut:
    with _record_token_use(parts, caller, number, "stop"):
        parts.service.stop_run(number, person=caller.id, reason=body.reason)
    return records.get_run_details(parts, caller, number)


@router.post(
    "/runs/{number}/undo",
    operation_id="undoRun",
    summary="Request the undo of a run",
    status_code=202,
)
def request_undo(
    parts: Parts, caller: RequestCaller, number: RunId, body: UndoIn, response: Response
) -> schemas.RunDetailsOut:
    """The undo is a new run with its own plan and approvals."""
    run = parts.service.request_undo(number, body.build_terms(caller))
    return records.respond_with_new_run(parts, caller, run, response)


@router.post(
    "/runs/{number}/request", operation_id="requestPlan", summary="Request what a plan shows"
)
def request_plan(
    parts: Parts, caller: RequestCaller, number: RunId, body: ApprovalIn
) -> schemas.RunDetailsOut:
    """For a run that is `planned`. It starts, or needs the approvals that its plan names."""
    with _record_token_use(parts, caller, number, "request"):
        parts.service.request_plan(
            number, person=caller.id, digest=body.digest, reason=body.reason
        )
    return records.get_run_details(parts, caller, number)


@router.post(
    "/runs/{number}/replan",
    operation_id="replanRun",
    summary="Plan a request again",
    status_code=202,
)
def replan_run(
    parts: Parts, caller: RequestCaller, number: RunId, response: Response
) -> schemas.RunDetailsOut:
    """A new run with the same values and reason, for a plan that is not current any more."""
    run = parts.service.replan_run(number, person=caller.id, origin=caller.origin)
    return records.respond_with_new_run(parts, caller, run, response)


@router.post(
    "/runs/{number}/again",
    operation_id="repeatRun",
    summary="Request an ended run again",
    status_code=202,
    response_model=RequestResultOut,
)
def repeat_run(
    request: Request,
    parts: Parts,
    caller: RequestCaller,
    number: RunId,
    body: RepeatIn,
    wait: Wait = 0,
) -> Response:
    """A new run with the same values; a pattern or tag selects the hosts that match it now."""
    with parts.database.reading(caller.view_rights) as tx:
        ended = runs.get_run(tx, number)
    requests = resubmit.build_resubmit_requests(ended, caller.policy.inventory.tags)
    return _request_run(request, parts, caller, requests, body, wait)


@router.post(
    "/runs/{number}/resolve",
    operation_id="resolveRun",
    summary="Resolve a run with an unknown outcome",
)
def resolve_run(
    parts: Parts, caller: ApproveCaller, number: RunId, body: ResolutionIn
) -> schemas.RunDetailsOut:
    with _record_token_use(parts, caller, number, "resolve"):
        parts.service.resolve_run(
            number, person=caller.id, succeeded=body.succeeded, reason=body.reason
        )
    return records.get_run_details(parts, caller, number)


@router.post("/runs/{number}/review", operation_id="reviewRun", summary="Review an emergency run")
def review_run(
    parts: Parts, caller: ApproveCaller, number: RunId, body: ReviewIn
) -> schemas.RunDetailsOut:
    """For a run that bypassed its approvals; the people who could have approved it may review."""
    with _record_token_use(parts, caller, number, "review"):
        parts.service.break_glass.review_break_glass(
            number, person=caller.id, findings=body.findings
        )
    return records.get_run_details(parts, caller, number)


@router.post(
    "/undo",
    operation_id="undoSelection",
    summary="Request the undo of several runs",
    status_code=202,
)
def undo_selection(
    parts: Parts, caller: RequestCaller, body: SelectionIn, response: Response
) -> schemas.RunDetailsOut:
    """One run with one plan and digest. Its child runs undo a change each, the newest first."""
    selection = UndoSelection(
        person=body.person or "",
        token=body.token or "",
        schedule=body.schedule or 0,
        since=to_microseconds(body.since) or 0,
        until=to_microseconds(body.until) or 0,
        area=body.area or "",
    )
    run = parts.service.request_undo_of_selection(selection, body.build_terms(caller))
    return records.respond_with_new_run(parts, caller, run, response)


def _request_run(
    request: Request,
    parts: ApiParts,
    caller: Caller,
    parsed: tuple[str, Sequence[AnyRunbook]],
    body: RunRequestIn | RepeatIn,
    wait: float,
) -> Response:
    """Record a request.

    Args:
        parsed: The host pattern ("" for a single host), and one request for each host.
    """
    pattern, requests = parsed
    preview = preview_own_request(
        parts, caller, type(requests[0]), [one.target for one in requests]
    )
    run = parts.service.request_on_hosts(requests, body.build_terms(caller), host_pattern=pattern)
    if not is_at_rest(run.state):
        read_result = partial(_read_result, parts, caller, run.id, preview)
        wait_for_run(request, PendingResponse(run.id, wait, read_result))
    result = RequestResultOut(
        run=schemas.RunOut.from_run(run, (), parts.base_url), preview=preview
    )
    return render_response(result, 202, {"Location": f"/api/v1/runs/{run.id}"})


def _record_token_use(
    parts: ApiParts, caller: Caller, run_id: int, action: str
) -> AbstractContextManager[None]:
    with parts.database.reading(caller.view_rights) as tx:
        run = runs.get_run(tx, run_id)
    return records.record_token_use(caller, action, run=run.id, host=run.host)


def _read_result(
    parts: ApiParts, caller: Caller, run_id: int, preview: PreviewOut
) -> RequestResultOut:
    with parts.database.reading(caller.view_rights) as tx:
        run, decisions = runs.get_run(tx, run_id), runs.list_decisions(tx, run_id)
    return RequestResultOut(
        run=schemas.RunOut.from_run(run, decisions, parts.base_url),
        preview=preview,
        report=schemas.ReportOut.model_validate(run.report) if run.report else None,
    )
