"""Shapes: runs, plans, votes and entries as the API tells of them. Times are RFC 3339, UTC."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bot.audit.change_log import Entry
from bot.db.locks import Lock
from bot.model.plan import PlannedStep
from bot.model.run import Run, State, StepRecord, StepState, Vote
from bot.workflow.run_timeline import get_entry_facts
from bot.workflow.run_view import RunView
from bot.workflow.schedule_facts import ScheduleFacts
from runbooks import Report


class Shape(BaseModel):
    """What is told. Nothing else is ever in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else at(microseconds)


def at(microseconds: int) -> datetime:
    """Return a stored time, exactly."""
    whole, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(whole, UTC).replace(microsecond=rest)


class VoteShape(Shape):
    """One person's yes or no to the digest of a plan. in_stead_of: whose key it was."""

    person: str
    approves: bool
    digest: str
    at: datetime
    reason: str
    in_stead_of: str | None = None
    second_factor: bool

    @classmethod
    def of(cls, vote: Vote) -> "VoteShape":
        return cls(
            person=vote.person,
            approves=vote.yes,
            digest=vote.digest,
            at=at(vote.at),
            reason=vote.reason,
            in_stead_of=vote.instead_of or None,
            second_factor=bool(vote.factor),
        )


class StepShape(Shape):
    """One command on one host, exactly as it is told, and what became of it.

    state: null until it is sent. status: the command's own. trouble: what went wrong, in words.
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
    trouble: str | None = None

    @classmethod
    def of(cls, n: int, step: PlannedStep, record: StepRecord | None) -> "StepShape":
        return cls(
            n=n,
            title=step.title,
            host=step.host,
            fingerprint=step.fingerprint,
            command=str(step.do),
            undo=None if step.undo is None else str(step.undo),
            no_undo=step.no_undo or None,
            before=step.before,
            after=step.after,
            state=record and record.state,
            sent_at=moment(record and record.sent),
            ended_at=moment(record and record.ended),
            status=record.status if record else None,
            output=record.output if record else None,
            trouble=(record.trouble or None) if record else None,
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
        proposal = view.run.proposal
        if proposal is None:
            return None
        return cls(
            digest=view.run.digest,
            because=proposal.because,
            notes=proposal.notes,
            reversible=proposal.reversible,
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
        return cls(at=at(entry.at), facts=dict(get_entry_facts(entry)), **told)


class LockShape(Shape):
    """Which run holds a host, and since when."""

    run: int
    since: datetime

    @classmethod
    def of(cls, lock: Lock | None) -> "LockShape | None":
        return cls(run=lock.run, since=at(lock.since)) if lock else None


class RunShape(Shape):
    """One run, as in a list. page: where people see it. needed: how many approvals it takes."""

    id: int
    title: str
    state: State
    over: bool
    runbook: str
    kind: Literal["check", "change"]
    request: str = Field(description="The request as it would be typed.")
    fields: dict[str, str]
    host: str
    hosts: Sequence[str]
    area: str = Field(description="Of a check on hosts of several areas, all: `core, edge`.")
    asked_by: str
    door: str
    reason: str
    asked_at: datetime
    expires_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    digest: str = Field(description="Of the plan, 64 hex digits; empty until there is one.")
    needed: int
    approved_by: Sequence[str]
    undo_of: int | None
    part_of: int | None
    counters: int | None
    summary: str
    unwell: bool = Field(description="Its report tells of something wrong: it needs attention.")
    page: str

    @classmethod
    def of(cls, run: Run, votes: Sequence[Vote], base_url: str) -> "RunShape":
        return cls(**brief(run, votes, base_url))


def brief(run: Run, votes: Sequence[Vote], base_url: str) -> dict[str, Any]:
    """Return what lists and details both tell."""
    return {
        "id": run.id,
        "title": run.title,
        "state": run.state,
        "over": run.over,
        "runbook": run.words,
        "kind": run.kind,
        "request": run.request or run.words,
        "fields": dict(run.fields),
        "host": run.host,
        "hosts": run.hosts or (run.host,),
        "area": run.area,
        "asked_by": run.asked_by,
        "door": run.origin.door,
        "reason": run.reason,
        "asked_at": at(run.asked),
        "expires_at": moment(run.expires),
        "started_at": moment(run.started),
        "ended_at": moment(run.ended),
        "digest": run.digest,
        "needed": run.needed,
        "approved_by": [vote.person for vote in votes if vote.yes],
        "undo_of": run.undo_of,
        "part_of": run.parent,
        "counters": run.counters,
        "summary": run.summary,
        "unwell": run.unwell,
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
    def of(cls, facts: ScheduleFacts | None) -> "ScheduleFactsShape | None":
        return cls(**vars(facts)) if facts else None


class RunInFull(RunShape):
    """All that is known of one run.

    version: grows with each change. missing: how many approvals it still takes, whose: of whom,
    approvers: by whom that could be. parts: of a request for several hosts, one run for each.
    """

    version: int
    says: Sequence[str] = Field(description="The rules that apply, in their own words.")
    missing: int
    whose: str
    approvers: Sequence[str]
    wants_second_factor: bool = Field(description="Then it is approved on its page only.")
    locked_by: LockShape | None
    plan: PlanShape | None
    report: ReportShape | None
    votes: Sequence[VoteShape]
    parts: Sequence[RunShape]
    schedule: ScheduleFactsShape | None = Field(description="What a schedule does, and when.")
    proposals: Sequence[int] = Field(
        description="Open counter-proposals for it: it stays pending until one is accepted."
    )
    frozen: str = Field(description="Why it waits once it is approved; empty if nothing holds it.")
    entries: Sequence[EntryShape]

    @classmethod
    def from_view(cls, view: RunView, base_url: str) -> "RunInFull":
        run = view.run
        return cls(
            **brief(run, view.votes, base_url),
            version=run.version,
            says=run.says,
            missing=view.missing,
            whose=view.whose,
            approvers=[person.id for person in view.approvers],
            wants_second_factor=view.takes_second_factor,
            locked_by=LockShape.of(view.lock),
            plan=PlanShape.from_view(view),
            report=ReportShape.of(run.report) if run.report else None,
            votes=[VoteShape.of(vote) for vote in view.votes],
            parts=[RunShape.of(child, (), base_url) for child in view.children],
            schedule=ScheduleFactsShape.of(view.schedule),
            proposals=view.proposals,
            frozen=view.frozen,
            entries=[EntryShape.of(entry) for entry in view.entries],
        )
