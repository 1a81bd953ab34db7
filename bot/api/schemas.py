"""Response models for runs, plans, decisions and log entries. Times are RFC 3339 in UTC.

A model reads its fields from the object that it shows: those of the same name, or of the field's
alias.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bot.audit.change_log import Entry
from bot.model.plan import PlannedStep, PlanSection, ResolvedPlan
from bot.model.run import Decision, RefusedBy, Run, State, StepRecord, StepState
from bot.model.run_states import (
    StatusDisplay,
    describe_outcome,
    get_child_run_display,
    get_run_display,
)
from bot.model.waiting import Waiting, WaitingFor
from bot.queries.pending import CounterProposal
from bot.queries.run_timeline import get_entry_facts
from bot.queries.run_view import RunView


class OutputModel(BaseModel):
    """Base of all response models. Unknown fields are an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", from_attributes=True, validate_by_name=True
    )


def to_datetime(microseconds: int) -> datetime:
    """Convert a stored time, in microseconds since 1970, without rounding."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


def _convert_time(value: object) -> object:
    return to_datetime(value) if isinstance(value, int) else value


def empty_to_none(value: object) -> object:
    return value or None


StoredTime = Annotated[datetime, BeforeValidator(_convert_time)]
"""A time that is stored in microseconds since 1970."""
WholeSeconds = Annotated[int, BeforeValidator(lambda microseconds: microseconds // 1_000_000)]
TextOrNull = Annotated[str | None, BeforeValidator(empty_to_none)]
"""Null for an empty text."""


class DecisionOut(OutputModel):
    """One approval or denial of the plan with this digest."""

    person: str
    approves: bool
    digest: str
    at: StoredTime = Field(validation_alias="decided_at")
    reason: str
    on_behalf_of: TextOrNull = Field(
        None, description="The owner on whose behalf a delegate decided."
    )
    second_factor: Annotated[bool, BeforeValidator(bool)] = Field(
        validation_alias="factor", description="Whether the person presented a second factor."
    )
    start_at: StoredTime | None = Field(
        None, description="The earliest start that the person approved; null for any."
    )


class QuestionOut(OutputModel):
    """A question about a run, or the answer to the questions before it."""

    person: str
    at: StoredTime
    text: str
    is_answer: bool


class PlanSectionOut(OutputModel):
    """The steps of a plan that follow one another on one host, as they are signed."""

    host: str
    sha256: str = Field(description="Of the text, in UTF-8.")
    text: str

    @classmethod
    def from_section(cls, section: PlanSection) -> "PlanSectionOut":
        return cls(host=section.host, sha256=section.digest, text=section.text)


class PlanDocumentOut(OutputModel):
    """A plan as it is signed: a document, and the sections that it names."""

    digest: str = Field(description="SHA-256 of the document, in UTF-8: the digest of the plan.")
    document: str
    sections: list[PlanSectionOut]

    @classmethod
    def from_plan(cls, plan: ResolvedPlan) -> "PlanDocumentOut":
        sections = [PlanSectionOut.from_section(each) for each in plan.sections]
        return cls(digest=plan.digest, document=plan.document, sections=sections)


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
    sent_at: StoredTime | None = None
    ended_at: StoredTime | None = None
    status: int | None = Field(None, description="Exit status of the command.")
    output: str | None = None
    error: str | None = Field(None, description="Why the step failed.")

    @classmethod
    def from_step(cls, n: int, step: PlannedStep, record: StepRecord | None) -> "StepOut":
        planned = {
            "n": n,
            "title": step.title,
            "host": step.host,
            "fingerprint": step.fingerprint,
            "command": str(step.command),
            "undo": None if step.undo is None else str(step.undo),
            "no_undo": step.no_undo_reason or None,
            "before": step.before,
            "after": step.after,
        }
        result = record and {
            "state": record.state,
            "sent_at": record.sent_at,
            "ended_at": record.ended_at,
            "status": record.exit_status,
            "output": record.output,
            "error": record.error or None,
        }
        return cls.model_validate(planned | (result or {}))


class PlanOut(OutputModel):
    """The plan that approvers approve, by its digest."""

    digest: str
    current_state: str = Field(description="What Keyturn read from the host before planning.")
    state_label: str = Field(
        description="What `current_state` is now: a change that has started has left it."
    )
    planned_at: StoredTime | None = Field(description="When the host was read for the plan.")
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
            state_label=view.plan_state_label,
            planned_at=None if view.planned_at is None else to_datetime(view.planned_at),
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


class EntryOut(OutputModel):
    """One entry of the change log."""

    seq: int
    at: StoredTime
    kind: str
    run: int | None
    person: str
    host: str
    details: dict[str, Any] = Field(description="What the entry records; depends on its kind.")
    hash: str = Field(description="Hash of the entry, a leaf of the log's Merkle tree (RFC 6962).")

    @classmethod
    def from_entry(cls, entry: Entry) -> "EntryOut":
        data = {name: value for name, value in vars(entry).items() if name != "body"}
        return cls(details=dict(get_entry_facts(entry)), **data)


class ReviewOut(OutputModel):
    """Why a run that started without approval needs a review by another person, and the review."""

    run: int
    person: str
    deed: str = Field(examples=["used break-glass"], description="What the person did.")
    reason: str
    activated_at: StoredTime | None
    due_at: StoredTime | None = Field(
        validation_alias="review_due", description="Null after the review."
    )
    reviewer: TextOrNull
    reviewed_at: StoredTime | None
    findings: TextOrNull = Field(validation_alias="review")


class LockOut(OutputModel):
    """The run that locks a host."""

    run: int
    since: StoredTime


class WaitingOut(OutputModel):
    """What a run waits for, if not for people or for its turn."""

    reason: WaitingFor = Field(
        description="`freeze`: a freeze ends. `lock`: a run releases the host. `break-glass`: a "
        "break-glass run on the same host goes first. `worker`: a site gets a worker. `outcome`: "
        "the outcome of a part is known. `claim`: redundant parts are up again."
    )
    name: str = Field(
        description="Name of the freeze, the locked host, the sites without a worker, or the "
        "hosts or parts whose outcome is unknown."
    )
    run: int | None = Field(
        description="The run that holds the lock or goes first; null if there is none, or you may "
        "not view it."
    )
    time: StoredTime | None = Field(
        description="When the freeze ends, or the last heartbeat of a worker."
    )

    @classmethod
    def from_waiting(cls, waiting: Waiting | None) -> "WaitingOut | None":
        if waiting is None:
            return None
        run = waiting.run if waiting.is_run_viewable else None
        return cls.model_validate(
            {"reason": waiting.reason, "name": waiting.name, "run": run, "time": waiting.time}
        )


class RunOut(OutputModel):
    """One run, as in a list."""

    id: int = Field(description="Number of the run.")
    title: str = Field(description="The request as a heading, such as `undo of run 7: …`.")
    state: State
    label: str = Field(description="The state as pages, chat and terminal show it.")
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
    requested_for: str = Field(
        description="Id of the person for whom an agent made the request; empty for none."
    )
    source: str = Field(description="Where the request came in: web, slack, api, cli, mcp, …")
    reason: str = Field(description="Reason of the request.")
    ticket: str | None = Field(description="Change ticket of the request.")
    requested_at: StoredTime
    expires_at: StoredTime | None = Field(
        description="When the run expires if it has not been approved or started."
    )
    started_at: StoredTime | None
    ended_at: StoredTime | None
    digest: str = Field(description="Of the plan, 64 hex digits; empty before planning.")
    required_approvals: int = Field(description="Number of approvals that the run needs in all.")
    approved_by: Sequence[str] = Field(description="Ids of the people who approved it.")
    requires_second_factor: bool = Field(
        description="Whether an approval needs a second factor, and so the run's web page."
    )
    requires_signature: bool = Field(
        description="Whether an approval must be a signature over the document of the plan."
    )
    undo_of: int | None = Field(description="The run that this one undoes.")
    parent: int | None = Field(description="The run on several hosts that this one belongs to.")
    proposal_for: int | None = Field(
        description="The run for which this one proposes other values."
    )
    replan_of: int | None = Field(
        description="The run whose plan was not current any more, and which this one replaces."
    )
    summary: str = Field(
        description="The result, or what the run waits for, in a sentence; empty for neither."
    )
    waiting_for: WaitingOut | None = Field(
        description="What the run waits for; null if for people, for its turn or for nothing."
    )
    refused_by: RefusedBy | None = Field(
        description="What refused a run that is `refused`: the policy, missing `approvals`, the "
        "change log as `evidence`, the runbook, the redundancy `guard`, the ticket, a missing "
        "`reason`, the schedule, or an `error` of Keyturn or its policy."
    )
    needs_attention: bool = Field(
        description="Whether the run succeeded and its report is not healthy."
    )
    page: str = Field(description="Address of the run's web page.")

    @classmethod
    def from_run(
        cls,
        run: Run,
        decisions: Sequence[Decision],
        base_url: str,
        parent_state: State | None = None,
    ) -> "RunOut":
        display = get_child_run_display(run, parent_state)
        return cls(**describe_run(run, decisions, base_url, display))


def describe_run(
    run: Run,
    decisions: Sequence[Decision],
    base_url: str,
    display: StatusDisplay | None = None,
) -> dict[str, Any]:
    """Return the fields that a run has both in lists and in its details.

    display: how its state is displayed, if the run alone does not say it.
    """
    return {
        "id": run.id,
        "title": run.title,
        "state": run.state,
        "label": (display or get_run_display(run)).label,
        "ended": run.is_ended,
        "runbook": run.runbook,
        "kind": run.kind,
        "request": run.request or run.runbook,
        "values": dict(run.values),
        "host": run.host,
        "hosts": run.hosts or (run.host,),
        "area": run.area,
        "requested_by": run.requested_by,
        "requested_for": run.origin.agent.behalf if run.origin.agent else "",
        "source": run.origin.source,
        "reason": run.reason,
        "ticket": run.ticket or None,
        "requested_at": run.requested_at,
        "expires_at": run.expires_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "digest": run.digest,
        "required_approvals": run.required_approvals,
        "approved_by": [decision.person for decision in decisions if decision.approves],
        "requires_second_factor": run.requirements.requires_second_factor,
        "requires_signature": run.requirements.requires_signature,
        "undo_of": run.undo_of,
        "parent": run.parent,
        "proposal_for": run.proposal_for,
        "replan_of": run.replan_of,
        "summary": describe_outcome(run),
        "waiting_for": WaitingOut.from_waiting(run.waiting),
        "refused_by": run.refused_by,
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


class DelegateOut(OutputModel):
    """A person who can approve on behalf of an owner."""

    person: str
    on_behalf_of: str


class ValueChangeOut(OutputModel):
    """A requested value, and the one that is proposed instead."""

    field: str
    requested: str
    proposed: str


class CounterProposalOut(OutputModel):
    """Other values that an approver proposes for a request."""

    proposed_by: str
    proposed_at: StoredTime
    reason: str
    changes: Sequence[ValueChangeOut]

    @classmethod
    def from_proposal(cls, proposal: CounterProposal) -> "CounterProposalOut":
        return cls(
            proposed_by=proposal.person,
            proposed_at=to_datetime(proposal.proposed_at),
            reason=proposal.reason,
            changes=[
                ValueChangeOut(field=name, requested=requested, proposed=proposed)
                for name, (requested, proposed) in proposal.changed_values.items()
            ],
        )


class RunDetailsOut(RunOut):
    """One run with its plan, decisions, report and log entries."""

    version: int = Field(description="Grows with each change of the run.")
    policy_notes: Sequence[str] = Field(description="The descriptions of the rules that apply.")
    missing_approvals: int = Field(
        description="Number of approvals that the run still needs: at least so many while it is "
        "`planning`, because the rules may require more for its plan."
    )
    approvals_from: str = Field(description="Who must give them, in words.")
    approvers: Sequence[str] = Field(description="The people who can give them.")
    delegates: Sequence[DelegateOut] = Field(
        description="Who else can give them, on behalf of an owner."
    )
    assigned_to: str | None = Field(
        description="The approver who is asked first; null if all are asked."
    )
    questions: Sequence[QuestionOut] = Field(
        description="What approvers asked, and the requester answered; oldest first."
    )
    lacks_signed_request: bool = Field(
        description="Whether the requester has to sign the plan before it is approved."
    )
    approve_refusal: str = Field(
        description="Why you, who may deny the run, cannot approve it now; empty if you can."
    )
    locked_by: LockOut | None
    plan: PlanOut | None
    report: ReportOut | None
    decisions: Sequence[DecisionOut]
    child_runs: Sequence[RunOut] = Field(
        description="Of a request for several hosts, one run for each host."
    )
    schedule: RequestedScheduleOut | None
    counter_proposal: CounterProposalOut | None = Field(
        description="Of a run in the state `counter_proposed`: who proposed its values, and why."
    )
    proposals: Sequence[int] = Field(
        description="Open counter-proposals; the run stays pending until one is accepted."
    )
    frozen: str = Field(
        description="The freeze that will hold the run after its approval; empty if none."
    )
    expiry_before_freeze_ends: str = Field(
        description="What becomes of a run whose approval expires before that freeze ends; empty "
        "if it does not."
    )
    review: ReviewOut | None = Field(
        description="Of a run that started without approval: its review by another person."
    )
    forecast: str = Field(
        description="What becomes of a plan if it is requested now; empty in other states."
    )
    actions: Sequence[str] = Field(
        description="What you may do to the run now: `approve`, `deny`, `withdraw`, `undo`, …"
    )
    entries: Sequence[EntryOut]

    @classmethod
    def from_view(cls, view: RunView, base_url: str) -> "RunDetailsOut":
        run = view.run
        return cls.model_validate(
            describe_run(run, view.decisions, base_url, view.display)
            | {
                "version": run.version,
                "policy_notes": run.policy_notes,
                "missing_approvals": view.missing_approvals,
                "approvals_from": view.approvals_from,
                "approvers": [person.id for person in view.approvers],
                "delegates": [
                    DelegateOut(person=delegate.id, on_behalf_of=owner.id)
                    for delegate, owner in view.delegates
                ],
                "assigned_to": view.discussion.assignee or None,
                "questions": view.discussion.remarks,
                "lacks_signed_request": view.lacks_signed_request,
                "approve_refusal": view.allowed_actions.approve_refusal,
                "locked_by": view.lock,
                "plan": PlanOut.from_view(view),
                "report": run.report,
                "decisions": view.decisions,
                "child_runs": [
                    RunOut.from_run(child, (), base_url, run.state) for child in view.children
                ],
                "schedule": view.schedule,
                "counter_proposal": view.counter_proposal
                and CounterProposalOut.from_proposal(view.counter_proposal),
                "proposals": view.proposals,
                "frozen": view.freeze_after_approval,
                "expiry_before_freeze_ends": view.expiry_before_freeze_ends,
                "review": view.break_glass
                if view.break_glass and view.break_glass.activated_at
                else None,
                "forecast": view.forecast,
                "actions": view.allowed_actions.names,
                "entries": [EntryOut.from_entry(entry) for entry in view.entries],
            }
        )
