"""Runs: found again, asked for, decided, stopped and taken back."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from bot.api import records, schemas
from bot.api.auth import Approving, Asking, Caller, Reading, Stopping
from bot.api.deps import ApiParts, Here
from bot.api.idempotency import DESCRIBED
from bot.api.long_poll import Awaiting, Wait, Wish, leave, rests, write_response
from bot.api.preview import OutlookShape, foreseen
from bot.api.schemas_in import (
    Acceptance,
    Approval,
    Because,
    Counter,
    Ending,
    Given,
    Moment,
    Number,
    Order,
    Repeat,
    Review,
    Standing,
    Word,
    micros,
)
from bot.audit import change_log
from bot.audit.change_log import EntryDraft
from bot.db import runs, search, search_words
from bot.model.run import RUN_STATUSES, Run
from bot.workflow import resubmit
from bot.workflow.unknown_filters import describe_unknown_names
from runbooks import AnyRunbook

router = APIRouter(prefix="/runs", tags=["runs"], route_class=Awaiting)


class RunFilter(Given):
    """Which runs. host: a name, or a pattern such as `web*`. text: words that all occur in it.

    before: only runs with a lower number; `next` of a page holds it for the one after.
    """

    host: Word | None = None
    person: Word | None = None
    runbook: Word | None = None
    state: list[Standing] = Field(default_factory=list[str], max_length=len(RUN_STATUSES))
    since: Moment | None = None
    until: Moment | None = None
    area: Word | None = None
    text: Word | None = None
    before: int | None = Field(None, ge=1, le=2_147_483_647)
    limit: int = Field(50, ge=1, le=200)

    @property
    def filter(self) -> search.RunFilter:
        return search.RunFilter(
            host=self.host and self.host.lower(),
            person=self.person and self.person.lower(),
            runbook=self.runbook and " ".join(self.runbook.lower().split()),
            states=frozenset(self.state),
            since=micros(self.since),
            until=micros(self.until),
            area=self.area,
            text=search_words.parse_search(self.text or ""),
            before=self.before,
        )


class RunPage(schemas.Shape):
    """runs: the newest first. next: the address of the page after, null on the last.

    unknown_filters: by filter, what is said of a name that neither the policy nor any run has.
    Where there are runs it is empty.
    """

    runs: list[schemas.RunShape]
    next: str | None
    unknown_filters: dict[str, str]


class Asked(schemas.Shape):
    """What has come of a request: the run, and what the policy says of it. run: null if dry.

    report: of a check that was over in the time that was waited for.
    """

    run: schemas.RunShape | None
    outlook: OutlookShape
    report: schemas.ReportShape | None = None


@router.get("", operation_id="listRuns", summary="List runs, the newest first")
def listing(
    request: Request, parts: Here, caller: Reading, wanted: Annotated[RunFilter, Query()]
) -> RunPage:
    with parts.database.reading(caller.sight) as tx:
        page = search.search_runs(tx, wanted.filter, most=wanted.limit)
        votes = runs.list_decisions_on(tx, [run.id for run in page.runs])
        found = page.runs or page.older
        unknown_filters = {} if found else describe_unknown_names(tx, wanted.filter, caller.policy)
    return RunPage(
        runs=[
            schemas.RunShape.of(run, votes.get(run.id, ()), parts.base_url) for run in page.runs
        ],
        next=_next(request, page.older) if page.older else None,
        unknown_filters=unknown_filters,
    )


@router.get("/{number}", operation_id="getRun", summary="Tell all about one run")
def show(
    request: Request, parts: Here, caller: Reading, number: Number, wait: Wait = 0
) -> schemas.RunDetails:
    told = partial(records.in_full, parts, caller, number)
    found = told()
    if not rests(found.state):
        leave(request, Wish(number, wait, told))
    return found


@router.post(
    "",
    operation_id="askForRun",
    summary="Ask for a run on one host or several",
    status_code=202,
    response_model=Asked,
    responses={200: {"model": Asked, "description": "Dry: nothing was recorded"}},
    dependencies=[DESCRIBED],
)
def ask(request: Request, parts: Here, caller: Asking, order: Order, wait: Wait = 0) -> Response:
    """Record the request. It is planned and, where the rules let it, done without more ado."""
    return _asked(request, parts, caller, order.understood(caller.policy), order, wait)


@router.post(
    "/{number}/approve",
    operation_id="approveRun",
    summary="Approve the plan you saw",
    dependencies=[DESCRIBED],
)
def approve(parts: Here, caller: Approving, number: Number, given: Approval) -> schemas.RunDetails:
    """Never where a rule wants a second factor: that is shown on the run's page."""

    def act() -> None:
        parts.workflow.approve_run(
            number, person=caller.id, digest=given.digest, reason=given.reason
        )

    return _done(parts, caller, number, "approve", act)


@router.post(
    "/{number}/deny",
    operation_id="denyRun",
    summary="Say no: it ends the run",
    dependencies=[DESCRIBED],
)
def deny(parts: Here, caller: Approving, number: Number, given: Because) -> schemas.RunDetails:
    def act() -> None:
        parts.workflow.deny_run(number, person=caller.id, reason=given.reason)

    return _done(parts, caller, number, "deny", act)


@router.post(
    "/{number}/counter",
    operation_id="counterRun",
    summary="Propose other values: a run of its own",
    dependencies=[DESCRIBED],
)
def counter(parts: Here, caller: Approving, number: Number, given: Counter) -> schemas.RunDetails:
    def act() -> int:
        return parts.workflow.propose_values(
            number, person=caller.id, changed_values=given.values, reason=given.reason
        ).id

    return _done(parts, caller, number, "counter", act)


@router.post(
    "/{number}/accept",
    operation_id="acceptRun",
    summary="Take over the values that an approver proposes",
    dependencies=[DESCRIBED],
)
def accept(parts: Here, caller: Asking, number: Number, given: Acceptance) -> schemas.RunDetails:
    def act() -> None:
        parts.workflow.accept_proposal(number, person=caller.id, digest=given.digest)

    return _done(parts, caller, number, "accept", act)


@router.post(
    "/{number}/withdraw",
    operation_id="withdrawRun",
    summary="Take your request back",
    dependencies=[DESCRIBED],
)
def withdraw(parts: Here, caller: Asking, number: Number) -> schemas.RunDetails:
    def act() -> None:
        parts.workflow.withdraw_run(number, person=caller.id)

    return _done(parts, caller, number, "withdraw", act)


@router.post(
    "/{number}/stop",
    operation_id="stopRun",
    summary="Send nothing more for a run",
    dependencies=[DESCRIBED],
)
def stop(parts: Here, caller: Stopping, number: Number, given: Because) -> schemas.RunDetails:
    def act() -> None:
        parts.workflow.stop_run(number, person=caller.id, reason=given.reason)

    return _done(parts, caller, number, "stop", act)


@router.post(
    "/{number}/undo",
    operation_id="undoRun",
    summary="Ask to take back what was done: a run of its own",
    status_code=202,
    dependencies=[DESCRIBED],
)
def undo(
    parts: Here, caller: Asking, number: Number, given: Because, answer: Response
) -> schemas.RunDetails:
    run = parts.workflow.request_undo(
        number, person=caller.id, origin=caller.origin, reason=given.reason
    )
    return records.respond_with_request(parts, caller, run, answer)


@router.post(
    "/{number}/again",
    operation_id="askAgain",
    summary="Ask again, by the values of a run that is over",
    status_code=202,
    response_model=Asked,
    responses={200: {"model": Asked, "description": "Dry: nothing was recorded"}},
    dependencies=[DESCRIBED],
)
def ask_again(
    request: Request, parts: Here, caller: Asking, number: Number, given: Repeat, wait: Wait = 0
) -> Response:
    """A run of its own. Of several hosts, those that its pattern or tag means by now."""
    with parts.database.reading(caller.sight) as tx:
        over = runs.get_run(tx, number)
    meant = resubmit.build_resubmit_requests(over, caller.policy.inventory.tags)
    return _asked(request, parts, caller, meant, given, wait)


@router.post(
    "/{number}/settle",
    operation_id="settleRun",
    summary="Say how an unknown run ended",
    dependencies=[DESCRIBED],
)
def settle(parts: Here, caller: Approving, number: Number, given: Ending) -> schemas.RunDetails:
    def act() -> None:
        parts.workflow.resolve_run(
            number, person=caller.id, succeeded=given.succeeded, reason=given.why
        )

    return _done(parts, caller, number, "settle", act)


@router.post(
    "/{number}/review",
    operation_id="reviewRun",
    summary="Say what you think of an emergency",
    dependencies=[DESCRIBED],
)
def review(parts: Here, caller: Approving, number: Number, given: Review) -> schemas.RunDetails:
    """Of a run that went through without its approvals; whoever could have given them may."""

    def act() -> None:
        parts.workflow.break_glass.review_break_glass(
            number, person=caller.id, findings=given.words
        )

    return _done(parts, caller, number, "review", act)


def _asked(
    request: Request,
    parts: ApiParts,
    caller: Caller,
    meant: tuple[str, Sequence[AnyRunbook]],
    given: Order | Repeat,
    wait: float,
) -> Response:
    """Ask, or only say what would come of it. meant: how hosts were spelled, and for each one."""
    spelled, requests = meant
    outlook = foreseen(parts, caller, type(requests[0]), [one.target for one in requests])
    if given.dry:
        return write_response(Asked(run=None, outlook=outlook), 200, {})
    run = _record(parts, caller, spelled, requests, given.reason)
    if not rests(run.state):
        leave(request, Wish(run.id, wait, partial(_became, parts, caller, run.id, outlook)))
    asked = Asked(run=schemas.RunShape.of(run, (), parts.base_url), outlook=outlook)
    return write_response(asked, 202, {"Location": f"/api/v1/runs/{run.id}"})


def _record(
    parts: ApiParts, caller: Caller, spelled: str, requests: Sequence[AnyRunbook], reason: str
) -> Run:
    if not spelled:
        return parts.workflow.request_run(
            requests[0], person=caller.id, origin=caller.origin, reason=reason
        )
    return parts.workflow.request_fanout_run(
        requests, host_pattern=spelled, person=caller.id, origin=caller.origin, reason=reason
    )


def _done(
    parts: ApiParts, caller: Caller, number: int, what: str, act: Callable[[], int | None]
) -> schemas.RunDetails:
    """Do it, with a note in the log by which token, and tell the run as it is by then."""
    with parts.database.reading(caller.sight) as tx:
        run = runs.get_run(tx, number)
    used = {"token": caller.token.prefix, "action": what}
    with change_log.announce_with_next_entry(
        EntryDraft("token used", run.id, caller.id, run.host, used)
    ):
        onward = act() or number
    return records.in_full(parts, caller, onward)


def _became(parts: ApiParts, caller: Caller, number: int, outlook: OutlookShape) -> Asked:
    with parts.database.reading(caller.sight) as tx:
        run, votes = runs.get_run(tx, number), runs.list_decisions(tx, number)
    return Asked(
        run=schemas.RunShape.of(run, votes, parts.base_url),
        outlook=outlook,
        report=schemas.ReportShape.of(run.report) if run.report else None,
    )


def _next(request: Request, older: int) -> str:
    given = [(name, value) for name, value in request.query_params.multi_items()]
    kept = [(name, value) for name, value in given if name != "before"]
    return f"{request.url.path}?{urlencode([*kept, ('before', str(older))])}"
