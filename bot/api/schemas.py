"""Response models for runs, plans, decisions and log entries. Times are RFC 3339 in UTC."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bot.audit.change_log import Entry
from bot.db.locks import Lock
from bot.model.plan import PlannedStep
from bot.model.run import Decision, Run, State, StepRecord, StepState
from bot.queries.questions import Remark
from bot.queries.run_timeline import get_entry_facts
from bot.queries.run_view import RunView
from bot.queries.schedule_details import ScheduleDetails
from runbooks import Report


class OutputModel(BaseModel):
    """Base of all response models. Unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def to_optional_datetime(microseconds: int | None) -> datetime | None:
    """Convert a stored time that may be missing."""
    return None if microseconds is None else to_datetime(microseconds)


def to_datetime(microseconds: int) -> datetime:
    """Convert a stored time, in microseconds since 1970, without rounding."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


class DecisionOut(OutputModel):
    """One approval or denial of the plan with this digest."""

    person: str
    approves: bool
    digest: str
    at: datetime
    reason: str
    on_behalf_of: str | None = Field(
        None, description="The owner on whose behalf a delegate decided."
    )
    second_factor: bool = Field(description="Whether the person presented a second factor.")

    @classmethod
    def from_decision(cls, decision: Decision) -> "DecisionOut":
        return cls(
            person=decision.person,
            approves=decision.approves,
            digest=decision.digest,
            at=to_datetime(decision.decided_at),
            reason=decision.reason,
            on_behalf_of=decision.on_behalf_of or None,
            second_factor=bool(decision.factor),
        )


class QuestionOut(OutputModel):
    """A question about a run, or the answer to the questions before it."""

    person: str
    at: datetime
    text: str
    is_answer: bool

    @classmethod
    def from_remark(cls, remark: Remark) -> "QuestionOut":
        return cls(
            person=remark.person,
            at=to_datetime(remark.at),
            text=remark.text,
            is_answer=remark.is_answer,
        )


class StepOut(OutputModel):
    """One command on one host, exactly as it is sent, and its result."""

    n: int = Field(description="Number of the step in the plan, from 1.")
    title: str
    host: str
    fingerprint: str = Field(description="Of the host key that the plan was made with.")
    command: str
    undo: str | None = Field(description="The command that undoes the step.")
    no_undo: str | None = Field(description="Why the step cannot be undone.")
    before: str
    after: str
    state: StepState | None = Field(None, description="Null until the step is sent.")
    sent_at: datetime | None = None
    ended_at: datetime | None = None
    status: int | None = Field(None, description="Exit status of the command.")
    output: str | None = None
    error: str | None = Field(None, description="Why the step failed.")

    @classmethod
    def from_step(cls, n: int, step: PlannedStep, record: StepRecord | None) -> "StepOut":
        return cls(
            n=n,
            title=step.title,
            host=step.host,
            fingerprint=step.fingerprint,
            command=str(step.command),
            undo=None if step.undo is None else str(step.undo),
            no_undo=step.no_undo_reason or None,
            before=step.before,
            after=step.after,
            state=record and record.state,
            sent_at=to_optional_datetime(record and record.sent_at),
            ended_at=to_optional_datetime(record and record.ended_at),
            status=record.exit_status if record else None,
            output=record.output if record else None,
            error=(record.error or None) if record else None,
        )


class PlanOut(OutputModel):
    """The plan that approvers approve, by its digest."""

    digest: str
    current_state: str = Field(description="What Keyturn read from the host before planning.")
    notes: Sequence[str]
    reversible: bool
    runbook_version: str
    policy_version: str
    steps: Sequence[StepOut]

    @classmethod
    def from_view(cls, view: RunView) -> "PlanOut | None":
        plan = view.run.plan
        if plan is None:
            return None
        return cls(
            digest=view.run.digest,
            current_state=plan.current_state,
            notes=plan.notes,
            reversible=plan.is_reversible,
            runbook_version=plan.runbook_version,
            policy_version=plan.policy_version,
            steps=[StepOut.from_step(n, step, record) for n, step, record in view.steps],
        )


class TableOut(OutputModel):
    """A table of a report."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class ReportOut(OutputModel):
    """The result of a check."""

    summary: str
    healthy: bool
    running: bool = Field(description="Whether the reported operation is still in progress.")
    findings: Sequence[str]
    table: TableOut | None

    @classmethod
    def from_report(cls, report: Report) -> "ReportOut":
        table = report.table
        return cls(
            summary=report.summary,
            healthy=report.healthy,
            running=report.running,
            findings=report.findings,
            table=TableOut(columns=table.columns, rows=table.rows) if table else None,
        )


class EntryOut(OutputModel):
    """One entry of the change log, with its place in the hash chain."""

    seq: int
    at: datetime
    kind: str
    run: int | None
    person: str
    host: str
    details: dict[str, Any] = Field(description="What the entry records; depends on its kind.")
    prev: str = Field(description="Hash of the entry before.")
    hash: str
    signature: str

    @classmethod
    def from_entry(cls, entry: Entry) -> "EntryOut":
        data = {name: value for name, value in vars(entry).items() if name not in {"body", "at"}}
        return cls(at=to_datetime(entry.at), details=dict(get_entry_facts(entry)), **data)


class LockOut(OutputModel):
    """The run that locks a host."""

    run: int
    since: datetime

    @classmethod
    def from_lock(cls, lock: Lock | None) -> "LockOut | None":
        return cls(run=lock.run, since=to_datetime(lock.since)) if lock else None


class RunOut(OutputModel):
    """One run, as in a list."""

    id: int = Field(description="Number of the run.")
    title: str = Field(description="The request as a heading, such as `undo of run 7: …`.")
    state: State
    ended: bool = Field(description="Whether the state is final.")
    runbook: str = Field(description="Name of the runbook.")
    kind: Literal["check", "change"]
    request: str = Field(description="The request as a command.")
    values: dict[str, str] = Field(description="Values of the runbook's fields, by name.")
    host: str = Field(description="The host; of a run on several hosts, the first.")
    hosts: Sequence[str] = Field(description="Names of the hosts.")
    area: str = Field(
        description="For a check on hosts of several areas, all of them: `core, edge`."
    )
    requested_by: str = Field(description="Id of the requester; `agent:NAME` for an agent.")
    source: str = Field(description="Where the request came in: web, slack, api, cli, mcp, …")
    reason: str = Field(description="Reason of the request.")
    ticket: str | None = Field(description="Change ticket of the request.")
    requested_at: datetime
    expires_at: datetime | None = Field(
        description="When the run expires if it has not been approved or started."
    )
    started_at: datetime | None
    ended_at: datetime | None
    digest: str = Field(description="Of the plan, 64 hex digits; empty before planning.")
    required_approvals: int = Field(description="Number of approvals that the run needs in all.")
    approved_by: Sequence[str] = Field(description="Ids of the people who approved it.")
    undo_of: int | None = Field(description="The run that this one undoes.")
    parent: int | None = Field(description="The run on several hosts that this one belongs to.")
    proposal_for: int | None = Field(
        description="The run for which this one proposes other values."
    )
    replan_of: int | None = Field(
        description="The run whose plan was not current any more, and which this one replaces."
    )
    summary: str = Field(description="The result in a sentence; empty until there is one.")
    needs_attention: bool = Field(
        description="Whether the run succeeded and its report is not healthy."
    )
    page: str = Field(description="Address of the run's web page.")

    @classmethod
    def from_run(cls, run: Run, decisions: Sequence[Decision], base_url: str) -> "RunOut":
        return cls(**describe_run(run, decisions, base_url))


def describe_run(run: Run, decisions: Sequence[Decision], base_url: str) -> dict[str, Any]:
    """Return the fields that a run has both in lists and in its details."""
    return {
        "id": run.id,
        "title": run.title,
        "state": run.state,
        "ended": run.is_ended,
        "runbook": run.runbook,
        "kind": run.kind,
        "request": run.request or run.runbook,
        "values": dict(run.values),
        "host": run.host,
        "hosts": run.hosts or (run.host,),
        "area": run.area,
        "requested_by": run.requested_by,
        "source": run.origin.source,
        "reason": run.reason,
        "ticket": run.ticket or None,
        "requested_at": to_datetime(run.requested_at),
        "expires_at": to_optional_datetime(run.expires_at),
        "started_at": to_optional_datetime(run.started_at),
        "ended_at": to_optional_datetime(run.ended_at),
        "digest": run.digest,
        "required_approvals": run.required_approvals,
        "approved_by": [decision.person for decision in decisions if decision.approves],
        "undo_of": run.undo_of,
        "parent": run.parent,
        "proposal_for": run.proposal_for,
        "replan_of": run.replan_of,
        "summary": run.summary,
        "needs_attention": run.needs_attention,
        "page": f"{base_url}/runs/{run.id}",
    }


class RequestedScheduleOut(OutputModel):
    """The schedule that is approved with a run."""

    request: str = Field(description="What each run does, as a command.")
    hosts: Sequence[str]
    when: str = Field(description="The cron expression in words, with its time zone.")
    upcoming: Sequence[str] = Field(description="The next times, in the schedule's time zone.")
    approval: str = Field(description="Whether later runs need an approval, and until when.")
    current: str = Field(description="What a run would do now, beside the steps of the plan.")

    @classmethod
    def from_details(cls, details: ScheduleDetails | None) -> "RequestedScheduleOut | None":
        return cls(**vars(details)) if details else None


class RunDetailsOut(RunOut):
    """One run with its plan, decisions, report and log entries."""

    version: int = Field(description="Grows with each change of the run.")
    policy_notes: Sequence[str] = Field(description="The descriptions of the rules that apply.")
    missing_approvals: int = Field(description="Number of approvals that the run still needs.")
    approvals_from: str = Field(description="Who must give them, in words.")
    approvers: Sequence[str] = Field(description="The people who can give them.")
    assigned_to: str | None = Field(
        description="The approver who is asked first; null if all are asked."
    )
    questions: Sequence[QuestionOut] = Field(
        description="What approvers asked, and the requester answered; oldest first."
    )
    requires_second_factor: bool = Field(
        description="Whether an approval needs a second factor, and so the run's web page."
    )
    locked_by: LockOut | None
    plan: PlanOut | None
    report: ReportOut | None
    decisions: Sequence[DecisionOut]
    child_runs: Sequence[RunOut] = Field(
        description="Of a request for several hosts, one run for each host."
    )
    schedule: RequestedScheduleOut | None
    proposals: Sequence[int] = Field(
        description="Open counter-proposals; the run stays pending until one is accepted."
    )
    frozen: str = Field(
        description="The freeze that will hold the run after its approval; empty if none."
    )
    entries: Sequence[EntryOut]

    @classmethod
    def from_view(cls, view: RunView, base_url: str) -> "RunDetailsOut":
        run = view.run
        return cls(
            **describe_run(run, view.decisions, base_url),
            version=run.version,
            policy_notes=run.policy_notes,
            missing_approvals=view.missing_approvals,
            approvals_from=view.approvals_from,
            approvers=[person.id for person in view.approvers],
            assigned_to=view.discussion.assignee or None,
            questions=[QuestionOut.from_remark(one) for one in view.discussion.remarks],
            requires_second_factor=view.requires_second_factor,
            locked_by=LockOut.from_lock(view.lock),
            plan=PlanOut.from_view(view),
            report=ReportOut.from_report(run.report) if run.report else None,
            decisions=[DecisionOut.from_decision(decision) for decision in view.decisions],
            child_runs=[RunOut.from_run(child, (), base_url) for child in view.children],
            schedule=RequestedScheduleOut.from_details(view.schedule),
            proposals=view.proposals,
            frozen=view.freeze_after_approval,
            entries=[EntryOut.from_entry(entry) for entry in view.entries],
        )
