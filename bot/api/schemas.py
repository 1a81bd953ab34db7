"""Shapes: runs, plans, votes and entries as the API tells of them. Times are RFC 3339, UTC."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bot.audit.change_log import Entry
from bot.db.locks import Lock
from bot.model.plan import PlannedStep
from bot.model.run import Decision, Run, State, StepRecord, StepState
from bot.workflow.run_timeline import get_entry_facts
from bot.workflow.run_view import RunView
from bot.workflow.schedule_facts import ScheduleDetails
from runbooks import Report


class Shape(BaseModel):
    """What is told. Nothing else is ever in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def to_optional_datetime(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else to_datetime(microseconds)


def to_datetime(microseconds: int) -> datetime:
    """Return a stored time, exactly."""
    whole, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(whole, UTC).replace(microsecond=rest)


class DecisionShape(Shape):
    """One person's yes or no to the digest of a plan. on_behalf_of: whose key it was."""

    person: str
    approves: bool
    digest: str
    at: datetime
    reason: str
    on_behalf_of: str | None = None
    second_factor: bool

    @classmethod
    def of(cls, vote: Decision) -> "DecisionShape":
        return cls(
            person=vote.person,
            approves=vote.approves,
            digest=vote.digest,
            at=to_datetime(vote.decided_at),
            reason=vote.reason,
            on_behalf_of=vote.on_behalf_of or None,
            second_factor=bool(vote.factor),
        )


class StepShape(Shape):
    """One command on one host, exactly as it is told, and what became of it.

    state: null until it is sent. status: the command's own. error: what went wrong, in words.
    """

    n: int
    title: str
    host: str
    fingerprint: str
    command: str
    undo: str | None
    no_undo: str | None = Field(description="Why there is no undo.")
    before: str
    after: str
    state: StepState | None = None
    sent_at: datetime | None = None
    ended_at: datetime | None = None
    status: int | None = None
    output: str | None = None
    error: str | None = None

    @classmethod
    def of(cls, n: int, step: PlannedStep, record: StepRecord | None) -> "StepShape":
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


class PlanShape(Shape):
    """What is approved, and shown beside it."""

    digest: str
    because: str
    notes: Sequence[str]
    reversible: bool
    runbook_version: str
    policy_version: str
    steps: Sequence[StepShape]

    @classmethod
    def from_view(cls, view: RunView) -> "PlanShape | None":
        proposal = view.run.plan
        if proposal is None:
            return None
        return cls(
            digest=view.run.digest,
            because=proposal.current_state,
            notes=proposal.notes,
            reversible=proposal.is_reversible,
            runbook_version=proposal.runbook_version,
            policy_version=proposal.policy_version,
            steps=[StepShape.of(n, step, record) for n, step, record in view.steps],
        )


class TableShape(Shape):
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class ReportShape(Shape):
    """What a check saw. running: what it tells of is still under way."""

    summary: str
    healthy: bool
    running: bool
    findings: Sequence[str]
    table: TableShape | None

    @classmethod
    def of(cls, report: Report) -> "ReportShape":
        table = report.table
        return cls(
            summary=report.summary,
            healthy=report.healthy,
            running=report.running,
            findings=report.findings,
            table=TableShape(columns=table.columns, rows=table.rows) if table else None,
        )


class EntryShape(Shape):
    """One entry of the change log, with its place in the chain. facts: what it says."""

    seq: int
    at: datetime
    kind: str
    run: int | None
    person: str
    host: str
    facts: dict[str, Any]
    prev: str
    hash: str
    signature: str

    @classmethod
    def of(cls, entry: Entry) -> "EntryShape":
        told = {name: value for name, value in vars(entry).items() if name not in {"body", "at"}}
        return cls(at=to_datetime(entry.at), facts=dict(get_entry_facts(entry)), **told)


class LockShape(Shape):
    """Which run holds a host, and since when."""

    run: int
    since: datetime

    @classmethod
    def of(cls, lock: Lock | None) -> "LockShape | None":
        return cls(run=lock.run, since=to_datetime(lock.since)) if lock else None


class RunShape(Shape):
    """One run, as in a list. page: where people see it. required_approvals: how many it takes."""

    id: int
    title: str
    state: State
    ended: bool
    runbook: str
    kind: Literal["check", "change"]
    request: str = Field(description="The request as it would be typed.")
    values: dict[str, str]
    host: str
    hosts: Sequence[str]
    area: str = Field(description="Of a check on hosts of several areas, all: `core, edge`.")
    requested_by: str
    source: str
    reason: str
    requested_at: datetime
    expires_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    digest: str = Field(description="Of the plan, 64 hex digits; empty until there is one.")
    required_approvals: int
    approved_by: Sequence[str]
    undo_of: int | None
    parent: int | None
    proposal_for: int | None
    summary: str
    needs_attention: bool = Field(
        description="Its report tells of something wrong: it needs attention."
    )
    page: str

    @classmethod
    def of(cls, run: Run, votes: Sequence[Decision], base_url: str) -> "RunShape":
        return cls(**describe_run(run, votes, base_url))


def describe_run(run: Run, votes: Sequence[Decision], base_url: str) -> dict[str, Any]:
    """Return what lists and details both tell."""
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
        "requested_at": to_datetime(run.requested_at),
        "expires_at": to_optional_datetime(run.expires_at),
        "started_at": to_optional_datetime(run.started_at),
        "ended_at": to_optional_datetime(run.ended_at),
        "digest": run.digest,
        "required_approvals": run.required_approvals,
        "approved_by": [vote.person for vote in votes if vote.approves],
        "undo_of": run.undo_of,
        "parent": run.parent,
        "proposal_for": run.proposal_for,
        "summary": run.summary,
        "needs_attention": run.needs_attention,
        "page": f"{base_url}/runs/{run.id}",
    }


class ScheduleFactsShape(Shape):
    """What is approved with a request for a schedule, in the words of its card and its page."""

    request: str = Field(description="What each run does, as it would be typed.")
    hosts: Sequence[str]
    when: str
    upcoming: Sequence[str] = Field(description="The next times, in the schedule's time zone.")
    approval: str = Field(description="Whether later runs need an approval, and until when.")
    current: str = Field(description="What it would do now, beside the steps of the plan.")

    @classmethod
    def of(cls, facts: ScheduleDetails | None) -> "ScheduleFactsShape | None":
        return cls(**vars(facts)) if facts else None


class RunDetails(RunShape):
    """All that is known of one run.

    version: grows with each change. missing_approvals: how many it still takes, approvals_from: of
    whom, approvers: by whom that could be. child_runs: of a request for several hosts, one for
    each.
    """

    version: int
    policy_notes: Sequence[str] = Field(description="The rules that apply, in their own words.")
    missing_approvals: int
    approvals_from: str
    approvers: Sequence[str]
    requires_second_factor: bool = Field(description="Then it is approved on its page only.")
    locked_by: LockShape | None
    plan: PlanShape | None
    report: ReportShape | None
    decisions: Sequence[DecisionShape]
    child_runs: Sequence[RunShape]
    schedule: ScheduleFactsShape | None = Field(description="What a schedule does, and when.")
    proposals: Sequence[int] = Field(
        description="Open counter-proposals for it: it stays pending until one is accepted."
    )
    frozen: str = Field(description="Why it waits once it is approved; empty if nothing holds it.")
    entries: Sequence[EntryShape]

    @classmethod
    def from_view(cls, view: RunView, base_url: str) -> "RunDetails":
        run = view.run
        return cls(
            **describe_run(run, view.decisions, base_url),
            version=run.version,
            policy_notes=run.policy_notes,
            missing_approvals=view.missing_approvals,
            approvals_from=view.approvals_from,
            approvers=[person.id for person in view.approvers],
            requires_second_factor=view.requires_second_factor,
            locked_by=LockShape.of(view.lock),
            plan=PlanShape.from_view(view),
            report=ReportShape.of(run.report) if run.report else None,
            decisions=[DecisionShape.of(vote) for vote in view.decisions],
            child_runs=[RunShape.of(child, (), base_url) for child in view.children],
            schedule=ScheduleFactsShape.of(view.schedule),
            proposals=view.proposals,
            frozen=view.freeze_after_approval,
            entries=[EntryShape.of(entry) for entry in view.entries],
        )
