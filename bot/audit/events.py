"""Every kind of entry in the change log, with its facts. Pure.

Run `make docs` after a change: docs/change-log-entries.md is made from these classes.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from bot.audit.event_type import (
    PERSON,
    Document,
    Event,
    EventText,
    NamePerson,
    PersonId,
    Time,
    list_event_types,
)
from bot.model.agents import WRITTEN_BY_AGENT
from bot.model.drift_state import DriftState
from bot.model.run import (
    ENDED_STATES,
    RefusedBy,
    State,
    StepState,
    describe_source,
    get_run_status,
)
from bot.model.run_states import RUN_STATUS_DISPLAYS, Tone
from bot.model.times import SECOND, format_deadline, format_span
from bot.model.waiting import Waiting, WaitingFor, describe_waiting

_REASON = "{reason}"
_DRIFT_TITLES: Mapping[str, str] = {
    DriftState.CHANGED: "Changed outside Keyturn",
    DriftState.MISSING: "Missing on the host",
    DriftState.UNREADABLE: "Cannot be read",
}


class _WithReason(Event):
    reason: str = ""


class _OfPlan(Event):
    """About the plan with this digest."""

    digest: str


class _OfPlanWithReason(_OfPlan, _WithReason):
    pass


class _NotPermitted(_WithReason):
    """A person tried what the kind names, and may not."""

    def get_shown(self) -> EventText:
        return EventText(f"{self.kind.capitalize()} for {{who}}", _REASON, Tone.WARNING, "ban")


class _BySource(Event):
    source: str


# --- requests and plans ---


class _Request(_BySource, _WithReason):
    runbook: str
    values: Mapping[str, str]
    request: str
    undo_of: int | None = None
    hosts: tuple[str, ...] = ()
    timing: Document | None = None
    guard_override: str = ""
    ticket: str = ""
    schedule: int | None = None
    replan_of: int | None = None
    editors: tuple[PersonId, ...] = ()
    behalf: PersonId = ""
    agent_owner: PersonId = ""
    client: str = ""
    token: str = ""
    trace_id: str = ""


class PlanRequested(_Request, kind="plan requested", by_agent=True):
    """A plan was requested, without its execution."""

    shown = EventText("Plan requested by {who}", _REASON, Tone.INFO, "person")


class Requested(_Request, kind="requested", decides=True, by_agent=True):
    """A run was requested."""

    def get_shown(self) -> EventText:
        for_whom = " for {behalf}" if self.behalf else ""
        where = describe_source(self.source)
        by_agent = f" ({WRITTEN_BY_AGENT})" if self.agent_owner else ""
        return EventText(
            f"Requested by {{who}}{for_whom} {where}".rstrip(),
            f"“{_REASON}”{by_agent}" if self.reason else "",
            Tone.INFO,
            "person",
        )


class Planned(_OfPlan, kind="planned", decides=True):
    """The plan of a run was made. An approval is for its digest."""

    plan: Document
    required_approvals: int = 0
    approver_groups: tuple[str, ...] = ()
    approvers: str = ""

    def get_shown(self) -> EventText:
        wanted = self.required_approvals
        needed = "No approval needed"
        if wanted:
            needed = f"{wanted} approval{'s'[: wanted != 1]} needed"
            needed += " from {approvers}" if self.approvers else ""
        return EventText("Planned", f"{needed}; digest {{digest:.10}}", Tone.INFO, "list")


class RateLimited(_WithReason, kind="rate limited", by_agent=True):
    """A request was refused because there were too many."""

    runbook: str


class AgentRefused(_WithReason, kind="agent refused", by_agent=True):
    """A request of an agent was refused."""

    runbook: str


class CounterProposed(_OfPlanWithReason, kind="counter-proposed"):
    """An approver proposed other values, in a run of its own."""

    shown = EventText("{who} proposed other values", "{changes}", Tone.WARNING, "swap")

    proposal: int
    values: Mapping[str, str]

    @property
    def changes(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items())


class Proposed(_WithReason, kind="proposed", decides=True):
    """The run holds the values that an approver proposed for another one."""

    shown = EventText("Proposed by {who}", "Instead of run {original_run}", Tone.INFO, "swap")

    requested_by: PersonId
    editors: tuple[PersonId, ...]
    original_run: int
    original_digest: str
    values: Mapping[str, str]
    request: str


class Accepted(_OfPlan, kind="accepted", decides=True):
    """The requester accepted a counter-proposal."""

    shown = EventText("Accepted by {who}", "", Tone.SUCCESS, "check")


# --- approvals ---


class Approved(_OfPlanWithReason, kind="approved", decides=True):
    """A person approved the plan."""

    shown = EventText("Approved by {who}", _REASON, Tone.SUCCESS, "key")

    factor: str = ""
    on_behalf_of: PersonId = ""
    signature: str = ""
    signing_key: str = ""
    start_at: Time | None = None

    def get_shown(self) -> EventText:
        if self.start_at is None:
            return super().get_shown()
        detail = f"to start at {format_deadline(self.start_at)}"
        detail += f": {_REASON}" if self.reason else ""
        return EventText("Approved by {who}", detail, Tone.SUCCESS, "key")


class Held(_OfPlanWithReason, kind="held", decides=True):
    """A person held an approved run before its start: its approvals count no more."""

    shown = EventText("Held by {who}", _REASON, Tone.WARNING, "clock")


class RequestSigned(_OfPlan, kind="request signed", decides=True):
    """The requester signed the plan."""

    shown = EventText("Request signed by {who}", "key {signing_key}", Tone.SUCCESS, "key")

    signature: str
    signing_key: str


class ApprovalRefused(_OfPlan, _NotPermitted, kind="approval refused"):
    """A person tried to approve the plan, and may not."""


class DenialRefused(_OfPlan, _NotPermitted, kind="denial refused"):
    """A person tried to deny the plan, and may not."""


class MoreApprovalsNeeded(_WithReason, kind="more approvals needed"):
    """The rules require more approvals at the start than before."""

    shown = EventText("One more approval is needed", _REASON, Tone.WARNING, "key")


class _ToApprovers(Event):
    people: tuple[PersonId, ...] = ()
    approvers: str = ""


class Reminded(_ToApprovers, kind="reminded"):
    """Approvers were reminded of a pending run."""

    shown = EventText("Approvers reminded", "Needs approval from {approvers}", Tone.INFO, "clock")


class Escalated(_ToApprovers, kind="escalated", decides=True):
    """No one decided in time, so others may approve as well."""

    shown = EventText("Escalated", "Can now be approved by {approvers}", Tone.WARNING, "clock")


class QuestionAsked(_OfPlan, kind="question asked"):
    """An approver asked the requester a question."""

    shown = EventText("{who} asked a question", "{text}", Tone.WARNING, "question")

    text: str


class QuestionAnswered(_OfPlan, kind="question answered"):
    """The requester answered the open questions."""

    shown = EventText("{who} answered", "{text}", Tone.INFO, "person")

    text: str


class Reassigned(_OfPlanWithReason, kind="reassigned"):
    """An approver asked another one to decide."""

    shown = EventText("Reassigned to {assignee} by {who}", _REASON, Tone.INFO, "swap")

    assignee: PersonId


class TokenUsed(Event, kind="token used"):
    """The next entry was made through the API, with this token."""

    shown = EventText(
        "{who} used the API", "To {action}, with the token {token}…", Tone.INFO, "key"
    )

    token: str
    action: str
    key: str = ""
    schedule: int | None = None


# --- standing grants and delegations ---


class GrantUsed(Event, kind="grant used"):
    """A run needs no approval because of a standing grant."""

    shown = EventText(
        "Approved by standing grant {grant}", "{uses} of {per_hour} this hour", Tone.SUCCESS, "key"
    )

    grant: int
    granted_by: PersonId
    uses: int
    per_hour: int


class _Grant(_BySource, _WithReason):
    grant: int
    granted_by: PersonId
    granted_to: PersonId
    what: str
    per_hour: int
    until: str


class GrantCreated(_Grant, kind="grant created"):
    """A person approved a kind of run in advance."""


class GrantRevoked(_Grant, kind="grant revoked", revokes="grant"):
    """A standing grant was revoked."""


class _Delegation(_BySource, _WithReason):
    delegation: int
    delegator: PersonId
    delegate: PersonId
    area: str
    until: str


class DelegationCreated(_Delegation, kind="delegation created"):
    """A person lets another one decide on their behalf."""


class DelegationRevoked(_Delegation, kind="delegation revoked", revokes="delegation"):
    """A delegation was ended early."""


class DelegationEndsSoon(Event, kind="delegation ends soon"):
    """Delegate and delegator receive a notice."""

    delegation: int
    delegator: PersonId
    delegate: PersonId
    ends_at: Time


# --- break-glass and reviews ---


class BreakGlassRequested(_OfPlanWithReason, kind="break-glass requested"):
    """The requester wants emergency access, which they activate on the page of the run."""

    shown = EventText("Break-glass requested by {who}", _REASON, Tone.WARNING, "alert")


class BreakGlassRefused(_OfPlan, _NotPermitted, kind="break-glass refused"):
    """A person tried to use break-glass, and may not."""


class BreakGlassActivated(
    _OfPlanWithReason, kind="break-glass activated", decides=True, revokes=PERSON
):
    """The run needs no approvals for a while. Until its review, its person has no second use."""

    shown = EventText("Break-glass activated by {who}", _REASON, Tone.DANGER, "alert")

    until: Time
    factor: str


class ReviewRequired(_OfPlan, kind="review required", revokes=PERSON):
    """A run started under a rule with `@review`."""

    shown = EventText("Another person must review it", "", Tone.WARNING, "eye")

    rules: tuple[str, ...] = ()
    on_duty: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


class BreakGlassReviewed(_OfPlanWithReason, kind="break-glass reviewed"):
    """Another person reviewed a run with break-glass, or under a rule with `@review`."""

    shown = EventText("Reviewed by {who}", _REASON, Tone.SUCCESS, "eye")


# --- execution ---


class OnHold(Event, kind="on hold"):
    """A run waits for a freeze, a host lock, a worker or another run, which is not named."""

    shown = EventText("Waits", "{waits}", Tone.PENDING, "clock")

    waiting_for: WaitingFor
    name: str = ""
    place: str = ""
    time: Time | None = None

    @property
    def waits(self) -> str:
        waiting = Waiting(self.waiting_for, self.name, self.place, self.time)
        return describe_waiting(waiting)


class NotWitnessed(Event, kind="not witnessed"):
    """A run with break-glass began although witnesses that its rules require did not answer."""

    shown = EventText(
        "Started without witnesses", "Break-glass is active. Away: {names}", Tone.WARNING, "alert"
    )

    required: int
    away: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        return ", ".join(self.away) or "too few witnesses are configured"


class _ByWorker(Event):
    worker: str = ""
    fence: int = 0


class Claimed(_ByWorker, kind="claimed"):
    """A worker took the lock of the host for the run."""

    shown = EventText("Starting on {host}", "Plans again before the first step", Tone.INFO, "lock")


class Resumed(_ByWorker, kind="resumed"):
    """Another worker continues the run between two steps."""

    shown = EventText(
        "Resumed by another worker", "{worker} executes the remaining steps", Tone.INFO, "lock"
    )


class LeaseTakenOver(_ByWorker, kind="lease taken over"):
    """A worker sent no heartbeat, so another process took over its run."""

    shown = EventText("Taken over", "No heartbeat from {worker}", Tone.WARNING, "lock")


class Started(_OfPlan, kind="started", decides=True):
    """The gate let the run start. A child run names its parent run."""

    shown = EventText("Started", "The plan is still current", Tone.INFO, "play")

    parent_run: int | None = None
    part: str = ""


class WaveStarted(Event, kind="wave started"):
    """The next hosts of a run on several hosts start."""

    shown = EventText("Wave started: {hosts}", "{why}", Tone.INFO, "play")

    hosts: tuple[str, ...]
    reason: str

    @property
    def why(self) -> str:
        return self.reason.capitalize()


class StepSending(Event, kind="step sending", decides=True):
    """A step is about to be sent to its host. The entry is durable before that."""

    shown = EventText("Step {step} sent", "{title}", Tone.INFO, "play")

    step: int
    title: str
    command: str = ""


class StepEnded(Event):
    step: int
    exit_status: int | None = None
    output_sha256: str = ""
    error: str = ""


class StepSucceeded(StepEnded, kind="step succeeded", decides=True):
    """A step succeeded."""

    shown = EventText("Step {step} succeeded", "{error}", Tone.SUCCESS, "check")


class StepFailed(StepEnded, kind="step failed"):
    """A step failed, or was never sent."""

    shown = EventText("Step {step} failed", "{error}", Tone.DANGER, "cross")


class StepUnknown(StepEnded, kind="step unknown"):
    """A step was sent, and its outcome is unknown."""

    shown = EventText("Step {step} has an unknown outcome", "{error}", Tone.WARNING, "question")


STEP_ENDS: Mapping[StepState, type[StepEnded]] = {
    StepState.SUCCEEDED: StepSucceeded,
    StepState.FAILED: StepFailed,
    StepState.UNKNOWN: StepUnknown,
}


class HostQueried(Event, kind="host queried"):
    """Keyturn asked a host for the outcome of a step."""

    step: int
    result: str = ""

    def get_shown(self) -> EventText:
        title = "Queried {host} for the outcome of step {step}"
        if not self.result:
            return EventText(title, "", Tone.INFO, "question")
        return EventText(title, "The host {result}", Tone.WARNING, "question")


class HostAnswered(Event, kind="host answered"):
    """A host returned what it knows about a step."""

    step: int
    result: str = ""
    marker: str = ""
    exit_status: int | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    out_bytes: int | None = None
    err_bytes: int | None = None
    noted: bool = False

    def get_shown(self) -> EventText:
        tone = Tone.SUCCESS if self.exit_status == 0 else Tone.WARNING
        return EventText("{host} returned the outcome", "The host {result}", tone, "eye")


class RestoredByHost(Event, kind="restored by host"):
    """A host restored what was before, since a change on probation was not confirmed."""

    probation: str
    exit_status: int | None = None

    def get_shown(self) -> EventText:
        return EventText(
            "{host} restored {probation} by itself",
            "The change was not confirmed on probation",
            Tone.WARNING if self.exit_status == 0 else Tone.DANGER,
            "back",
        )


class Verified(Event, kind="verified"):
    """The plan is empty after the last step."""

    shown = EventText("Verified", "{current_state}", Tone.SUCCESS, "eye")

    current_state: str


class FollowedUp(Event, kind="followed up"):
    """Work that continued on the host after its run has ended."""

    summary: str
    healthy: bool
    output_sha256: str = ""

    def get_shown(self) -> EventText:
        if self.healthy:
            return EventText("Follow-up finished", "{summary}", Tone.SUCCESS, "eye")
        title = "Follow-up finished: needs attention"
        return EventText(title, "{summary}", Tone.WARNING, "eye")


class _OfLegs(Event):
    legs: tuple[str, ...]

    @property
    def parts(self) -> str:
        return "; ".join(self.legs)


class LegsClaimed(_OfLegs, kind="legs claimed"):
    """The run may take down these redundant parts, and no other run may meanwhile."""

    shown = EventText("Legs claimed", "{parts}", Tone.INFO, "lock")


class LegReleased(_OfLegs, _WithReason, kind="leg released"):
    """A redundant part that a run may have taken down is up again."""

    shown = EventText("Leg released by {who}", "{parts}: {reason}", Tone.SUCCESS, "check")


class LegReleaseRefused(Event, kind="leg release refused"):
    """A person tried to release a redundant part by hand, and may not."""

    shown = EventText("Release of a leg refused for {who}", "", Tone.WARNING, "ban")


# --- ends of runs ---


class RunEnded(_WithReason):
    """The run is in the state that is the kind of the entry."""

    summary: str = ""
    refused_by: RefusedBy | None = None
    healthy: bool | None = None
    output_sha256: str = ""

    def get_shown(self) -> EventText:
        status = get_run_status(State(self.kind), needs_attention=self.healthy is False)
        display = RUN_STATUS_DISPLAYS[status]
        return EventText(display.label, "{summary}", display.tone, display.icon)


class Succeeded(RunEnded, kind=State.SUCCEEDED.value, decides=True):
    """The run did what was requested."""


class Failed(RunEnded, kind=State.FAILED.value, decides=True):
    """The run ended with an error."""


class OutcomeUnknown(RunEnded, kind=State.UNKNOWN.value):
    """The run waits until the outcome of a step is known."""


class NoChanges(RunEnded, kind=State.NO_CHANGES.value, decides=True):
    """The host was already as requested."""


class Refused(RunEnded, kind=State.REFUSED.value, decides=True):
    """The policy, the runbook or the gate refused the run."""


class Denied(RunEnded, kind=State.DENIED.value, decides=True):
    """An approver denied the run."""

    def get_shown(self) -> EventText:
        detail = _REASON if self.reason else "{summary}"
        return EventText("Denied by {who}", detail, Tone.DANGER, "ban")


class Expired(RunEnded, kind=State.EXPIRED.value, decides=True):
    """The run did not start in time."""


class Withdrawn(RunEnded, kind=State.WITHDRAWN.value, decides=True, by_agent=True):
    """The requester withdrew the run, or what it belonged to has ended."""

    def get_shown(self) -> EventText:
        return EventText("Withdrawn by {who}", "{summary}", Tone.NEUTRAL, "back")

    def describe(self, who: str, host: str, name_person: NamePerson) -> EventText:
        shown = super().describe(who, host, name_person)
        # The title says the same as the summary.
        return replace(shown, detail="") if who else shown


class Superseded(RunEnded, kind=State.SUPERSEDED.value, decides=True):
    """Another run replaced the run."""


class Stale(RunEnded, kind=State.STALE.value, decides=True):
    """The host, the policy or the runbook changed after the plan was made."""


class Stopped(RunEnded, kind=State.STOPPED.value, decides=True):
    """The run ended because of a stop."""


RUN_ENDS = {State(each.kind): each for each in RunEnded.__subclasses__()}
# The ends after which a run never continues.
FINAL_KINDS = frozenset(RUN_ENDS[state].kind for state in ENDED_STATES)


# --- schedules ---


class Scheduled(Event, kind="scheduled", decides=True):
    """An approved schedule begins."""

    shown = EventText("Schedule {schedule} started", "", Tone.SUCCESS, "clock")

    schedule: int
    timing: Document
    lapses_at: Time
    digest: str = ""


class ScheduleChanged(_WithReason):
    schedule: int


class ScheduleSuspended(ScheduleChanged, kind="schedule suspended", decides=True):
    """A person suspended the schedule, or its owner may not request the run any more."""

    shown = EventText("Schedule {schedule} was suspended", _REASON, Tone.WARNING, "ban")


class ScheduleResumed(ScheduleChanged, kind="schedule resumed", decides=True):
    """A suspended schedule is active again."""

    shown = EventText("Schedule {schedule} was resumed by {who}", _REASON, Tone.INFO, "play")


class ScheduleLapsed(ScheduleChanged, kind="schedule lapsed", decides=True):
    """The approval of the schedule is not valid any more."""

    shown = EventText("The approval of schedule {schedule} lapsed", _REASON, Tone.WARNING, "clock")


class ScheduleEnded(ScheduleChanged, kind="schedule ended", decides=True):
    """A person ended the schedule, or another one replaced it."""

    shown = EventText("Schedule {schedule} ended", _REASON, Tone.NEUTRAL, "back")


class ScheduleLapsesSoon(Event, kind="schedule lapses soon"):
    """Its owner and the owners of the area receive a notice."""

    schedule: int
    owner: PersonId
    lapses_at: Time


class Fired(Event, kind="fired"):
    """The schedule requested a run."""

    shown = EventText("Schedule {schedule} fired run {fired_run}", "", Tone.INFO, "clock")

    schedule: int
    due_at: Time
    fired_run: int


class FireSkipped(ScheduleChanged, kind="fire skipped"):
    """The schedule requested no run at a due time."""

    shown = EventText("Schedule {schedule} skipped a run", _REASON, Tone.NEUTRAL, "clock")

    due_at: Time


class FiresMissed(Event, kind="fires missed"):
    """Keyturn was not running at these due times."""

    shown = EventText(
        "Schedule {schedule} missed {count}",
        "Keyturn was not running then",
        Tone.WARNING,
        "clock",
    )

    schedule: int
    count: int
    first: Time
    last: Time


# --- drift ---


class DriftChanged(Event):
    """Something happened to a value that a run had set."""

    key: str


class DriftFound(DriftChanged, kind="drift found"):
    """A value that a run had set is not as set."""

    state: str
    value: str = ""
    set_value: str = ""
    since: Time | None = None
    until: Time | None = None

    def get_shown(self) -> EventText:
        title = _DRIFT_TITLES.get(self.state, "Drift found")
        return EventText(title, "{key}: {value}", Tone.WARNING, "swap")


class DriftEnded(DriftChanged, kind="drift ended"):
    """A value is as set again, or a person answered its drift."""

    shown = EventText("Drift ended", "{key} after {span}", Tone.SUCCESS, "check")

    state: str
    seconds: int

    @property
    def span(self) -> str:
        return format_span(self.seconds * SECOND)


class DriftAdopted(DriftChanged, _WithReason, kind="drift adopted"):
    """A person accepted the value that is on the host."""

    shown = EventText("Value adopted by {who}", _REASON, Tone.INFO, "person")

    value: str
    set_value: str


class DriftExpected(DriftChanged, _WithReason, kind="drift expected"):
    """A person lets the value vary until a time."""

    shown = EventText("Another value is expected, by {who}", _REASON, Tone.INFO, "clock")

    until: Time
    range: str
    value: str


class DriftAnswerRefused(_WithReason, kind="drift answer refused"):
    """A person tried to answer drift, and may not."""

    shown = EventText("Answer to drift refused for {who}", _REASON, Tone.WARNING, "ban")

    key: str


# --- changes while Keyturn was down ---


class ChangedOffline(_OfPlanWithReason, kind="changed offline"):
    """People had an enrolled host run a plan that they signed, while Keyturn was down."""

    shown = EventText("Changed offline, signed by {signers}", "{request}", Tone.INFO, "key")

    request: str
    runbook: str
    values: Mapping[str, str]
    plan: Document
    signers: tuple[PersonId, ...]
    signing_keys: tuple[str, ...]
    signatures: tuple[str, ...]
    # By action and number: when it began by the clock of the host, in seconds, and how it ended.
    steps: Document
    occurred_at: Time


class OfflineRecordInvalid(_OfPlanWithReason, kind="offline record invalid"):
    """A host's record of what it ran without Keyturn does not verify, or cannot be read."""

    shown = EventText("Offline record of {host} does not verify", _REASON, Tone.DANGER, "alert")


# --- output ---


class ErasureRequested(_BySource, _WithReason, kind="erasure requested"):
    """A person requested that the output of a run is erased."""

    shown = EventText("{who} requested to erase the output", _REASON, Tone.NEUTRAL, "person")

    login: str = ""


class ErasureRefused(_BySource, _NotPermitted, kind="erasure refused"):
    """A person tried to confirm or decline an erasure, and may not."""

    requested_by: PersonId = ""


class ErasureDeclined(_BySource, _WithReason, kind="erasure declined"):
    """An owner declined an erasure."""

    shown = EventText("{who} declined to erase the output", _REASON, Tone.NEUTRAL, "back")

    requested_by: PersonId


class OutputErased(_BySource, _WithReason, kind="output erased"):
    """An owner confirmed an erasure, and the output of these entries was erased."""

    shown = EventText("Output erased by {who}", _REASON, Tone.NEUTRAL, "ban")

    requested_by: PersonId
    entries: tuple[int, ...]


class OutputExpired(Event, kind="output expired"):
    """Keyturn erased the output that entries up to a number bind, after so many days."""

    until: Time
    days: int


# --- stops and bans ---


class StopRequested(_WithReason, kind="stop requested", decides=True):
    """The run sends nothing more."""

    shown = EventText("Stop requested by {who}", _REASON, Tone.DANGER, "ban")


class StopRefused(_NotPermitted, kind="stop refused"):
    """A person tried to stop a run or everything, and may not."""


class ResumeRefused(Event, kind="resume refused"):
    """A person tried to resume something, and may not."""


class BanRefused(Event, kind="ban refused"):
    """A person tried to ban another one, and may not."""


class EverythingStopped(_WithReason, kind="everything stopped", revokes=PERSON):
    """Nothing is sent to any host until it is resumed."""


class EverythingResumed(_WithReason, kind="everything resumed"):
    """The stop of everything was lifted."""

    stopped_by: PersonId
    stopped_at: Time


class FreezeOrdered(_BySource, _WithReason, kind="freeze ordered"):
    """Changes of some hosts wait until a time, or until the freeze is ended."""

    shown = EventText("Changes frozen by {who}: {what}", _REASON, Tone.WARNING, "clock")

    freeze: int
    what: str
    hosts: tuple[str, ...]
    areas: tuple[str, ...]
    until: Time


class FreezeEnded(_BySource, _WithReason, kind="freeze ended"):
    """A person ended a freeze before its time."""

    shown = EventText("Freeze {freeze} ended early by {who}", _REASON, Tone.INFO, "check")

    freeze: int
    what: str
    ordered_by: PersonId
    until: Time


class FreezeRefused(_NotPermitted, kind="freeze refused"):
    """A person tried to freeze changes or to end a freeze, and may not."""

    what: str


class Banned(_WithReason, kind="banned", revokes="banned_person"):
    """A person can do nothing until the ban is lifted."""

    banned_person: PersonId


class BanLifted(_WithReason, kind="ban lifted"):
    """A ban was lifted."""

    banned_person: PersonId
    banned_by: PersonId


# --- agents ---


class AgentAdded(Event, kind="agent added"):
    """A program may make requests as soon as another person confirms it."""

    agent: str
    owner: PersonId
    purpose: str
    days: int


class AgentConfirmed(Event, kind="agent confirmed"):
    """Another person confirmed an agent."""

    agent: str
    owner: PersonId


class _AgentChanged(_WithReason):
    agent: str


class AgentPaused(_AgentChanged, kind="agent paused"):
    """An agent makes no requests until it is resumed."""


class AgentResumed(_AgentChanged, kind="agent resumed"):
    """An agent may make requests again."""


class AgentEnded(_AgentChanged, kind="agent ended", revokes="agent"):
    """An agent ended for good."""


# --- sign-in ---


class SignedIn(_BySource, kind="signed in"):
    """A person signed in to the pages."""

    method: str


class SignedOut(_BySource, kind="signed out"):
    """A person signed out."""


class SessionEnded(_BySource, kind="session ended"):
    """A person ended one of their sessions."""


class SessionsEnded(_BySource, kind="sessions ended"):
    """A person ended all of their sessions."""


class SignInLinkCreated(_BySource, kind="sign-in link created"):
    """A person can sign in once by a link."""


class SignInRefused(_BySource, _WithReason, kind="sign-in refused"):
    """A sign-in failed. At most one a minute is recorded."""

    account: str = ""


class UnknownUserRefused(_BySource, _WithReason, kind="unknown user refused"):
    """An account in chat that no person in the policy has. At most one a minute is recorded."""

    user: str
    team: str


class _Token(_BySource):
    owner: PersonId
    token: str
    scopes: tuple[str, ...]
    name: str
    days: int | None = None
    behalf: PersonId = ""


class TokenCreated(_Token, kind="token created"):
    """An API token was created. The entry holds the beginning of the token."""


class TokenConfirmed(_Token, kind="token confirmed"):
    """The person for whom an agent acts confirmed its token."""


class TokenRevoked(_Token, kind="token revoked", revokes="token"):
    """An API token was revoked for good."""


class TokenRefused(_BySource, _WithReason, kind="token refused"):
    """A token was not valid. At most one a minute is recorded."""

    token: str = ""
    owner: PersonId = ""


class ForgeryRefused(Event, kind="forgery refused"):
    """A session, sign-in link, token or agent in the database was not written by Keyturn."""

    what: str
    name: str
    owner: PersonId


class _Factor(_BySource):
    owner: PersonId
    method: str
    factor: str


class FactorEnrolled(_Factor, kind="factor enrolled"):
    """A person enrolled a second factor."""


class FactorConfirmed(_Factor, kind="factor confirmed"):
    """An owner confirmed the second factor of another person."""


class FactorRemoved(_Factor, kind="factor removed", revokes="factor"):
    """A second factor was removed."""


class AllFactorsRemoved(_BySource, _WithReason, kind="all factors removed"):
    """Every second factor was removed on the command line."""

    number: int


class SteppedUp(_BySource, kind="stepped up"):
    """A person entered their second factor."""

    method: str
    factor: str
    counter: int


class StepUpRefused(_BySource, kind="step-up refused"):
    """A second factor was wrong."""

    method: str


# --- people of an identity provider ---


class _OfAccount(Event):
    """About an account of the identity provider, and the person that it is without people.yaml."""

    account: str
    account_person: PersonId
    user_name: str


class PersonProvisioned(_OfAccount, kind="person provisioned"):
    """The identity provider added a person, or made their account active again."""

    shown = EventText("{account_person} added by the identity provider", "{user_name}", Tone.INFO)

    external_id: str = ""
    email: str = ""
    stay: str
    is_back: bool = False


class ProvisionedPersonChanged(_OfAccount, kind="provisioned person changed"):
    """The identity provider changed the name, user name or address of a person."""

    shown = EventText("{account_person} changed by the identity provider", "{user_name}")

    changed: Mapping[str, str]


class PersonDeprovisioned(_OfAccount, kind="person deprovisioned", revokes="stay"):
    """The identity provider ended an account, and with it what the entries after this one say."""

    shown = EventText(
        "{account_person} removed by the identity provider", "{user_name}", Tone.WARNING, "ban"
    )

    stay: str
    is_deleted: bool = False


class ProvisionedGroupChanged(Event, kind="provisioned group changed"):
    """The identity provider changed a group, or who is in it: members are named by account."""

    shown = EventText("Group {group} changed by the identity provider", "", Tone.INFO)

    group: str
    group_id: str
    old_name: str = ""
    is_new: bool = False
    is_deleted: bool = False
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class ClaimedGroupsChanged(_BySource, kind="claimed groups changed"):
    """The token with which a person signed in names other groups than the one before."""

    shown = EventText("Groups of {who} by their sign-in changed", "{groups}", Tone.INFO)

    issuer: str
    groups: tuple[str, ...]


# --- settings and the installation ---


class PolicyChanged(Event, kind="policy changed"):
    """Another version of the policy is valid from now on."""

    old: str = ""
    new: str
    changed: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()
    added_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Fingerprints of signing keys by person, since the version that was logged before."""
    removed_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


class PolicyInvalid(Event, kind="policy invalid"):
    """There is no valid policy, so nothing can be requested or run."""

    error: str


class SettingsChanged(Event, kind="settings changed"):
    """Keyturn started with other settings than before."""

    settings: Mapping[str, str]
    digest: str


class WebhooksChanged(Event, kind="webhooks changed"):
    """The sources and subscriptions of webhooks differ from before."""

    webhooks: Document


class LocalRunbooksChanged(Event, kind="local runbooks changed"):
    """The installation's own runbooks differ from before."""

    files: Mapping[str, str]
    digest: str


class LocalRunbookEnabled(Event, kind="local runbook enabled"):
    """A person enabled one of the installation's own runbooks, as these files are."""

    runbook: str
    files: Mapping[str, str]
    alone: bool = False


class HostEnrolledAlone(Event, kind="host enrolled alone"):
    """The only owner of an area added a host without a second person."""

    fingerprint: str
    login: str


class HostListProposed(Event, kind="host list proposed"):
    """Hosts to add, change or remove: what differs, before and after, as people confirm it."""

    shown = EventText("List of {count} hosts proposed by {who}", "", Tone.INFO, "server")

    digest: str
    areas: tuple[str, ...]
    # The fields that differ, by host.
    before: Mapping[str, Document]
    after: Mapping[str, Document]
    source: str = ""

    @property
    def count(self) -> int:
        return len({*self.before, *self.after})


class _AboutHostList(Event):
    """About the list that the entry of this number proposed, with its digest."""

    list: int
    digest: str


class HostListConfirmed(_AboutHostList, kind="host list confirmed"):
    """An owner confirmed a list of hosts as it is."""

    shown = EventText("List {list} of hosts confirmed by {who}", "", Tone.SUCCESS, "check")

    factor: str = ""


class HostListWithdrawn(_AboutHostList, kind="host list withdrawn"):
    """A person withdrew a list of hosts, or its source proposes another one."""

    shown = EventText("List {list} of hosts withdrawn by {who}", "{reason}", Tone.NEUTRAL, "ban")

    reason: str = ""


class HostListWritten(_AboutHostList, kind="host list written"):
    """The changes of a list that two people confirmed are in inventory.yaml."""

    shown = EventText("List {list} of hosts written to the inventory", "", Tone.SUCCESS, "check")


class HostListRefused(_WithReason, kind="host list refused"):
    """A person may not confirm or withdraw a list of hosts."""

    shown = EventText("Confirmation of a list of hosts refused for {who}", "", Tone.WARNING, "ban")


class HostSourceRead(_BySource, kind="host source read"):
    """A source of hosts was read, with another result or problem than before."""

    shown = EventText("Source {source} of hosts: {result}", "", Tone.INFO, "server")

    hosts: int = 0
    problem: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def result(self) -> str:
        return self.problem or f"{self.hosts} hosts"


class DeliveriesRetried(Event, kind="deliveries retried"):
    """Failed deliveries of a webhook are sent again."""

    subscription: str
    entries: int
    login: str


class WebhookRefused(_BySource, _WithReason, kind="webhook refused"):
    """An incoming webhook was not valid. At most one a minute is recorded."""


class ExternalEvent(_BySource, kind="event"):
    """Another system sent an event."""

    title: str = ""
    hosts: tuple[str, ...] = ()
    occurred_at: Time | None = None
    category: str = ""
    reported_by: str = ""
    detail: str = ""
    url: str = ""


class DigestDue(Event, kind="digest due"):
    """Owners of areas receive the weekly digest."""


# --- the log itself ---


class KeyAdded(Event, kind="key"):
    """This key signs the log from here on. The key before signs the checkpoint of it as well."""

    public: str


class LogExported(Event, kind="log exported"):
    """A person exported the log."""

    login: str
    format: str


class LogVerified(Event, kind="log verified"):
    """A person verified the log, and it was intact."""

    login: str
    key: str = ""


class LoggingFailed(_WithReason, kind="logging failed"):
    """The log could not be written for a while. The facts say what happened meanwhile."""

    shown = EventText(
        "The change log could not be written", "{happened}", Tone.WARNING, "question"
    )

    mark: str = ""
    step: int | None = None
    outcome: str = ""
    exit_status: int | None = None
    error: str = ""
    current_state: str = ""
    steps_left: int | None = None
    state: str = ""
    summary: str = ""

    @property
    def happened(self) -> str:
        facts: dict[str, Any] = {**self.encode(), "mark": None}
        return "; ".join(f"{name} {fact}" for name, fact in facts.items() if fact is not None)


class LossAcknowledged(_WithReason, kind="loss acknowledged"):
    """A person acknowledged that entries were lost, for example by a failover."""

    first: int
    lost: int
    login: str = ""


class RowsSetAside(_WithReason, kind="rows set aside"):
    """A person set aside rows that someone inserted behind the last checkpoint."""

    # The entry of that checkpoint.
    after: int
    rows: int
    # Where the rows are now, and its hash.
    file: str
    sha256: str
    login: str = ""


class Restored(Event, kind="restored"):
    """The database was restored from a backup."""

    login: str
    created_at: Time
    entries: int
    head: str
    witnessed: int
    runs: tuple[int, ...] = ()


class BackedUp(Event, kind="backed up"):
    """A backup was written."""

    login: str
    file: str
    rows: int
    entries: int
    head: str


class DatabaseMoved(Event, kind="database moved"):
    """The database was copied to another server."""

    login: str
    rows: int
    old_engine: str
    new_engine: str


# Every class with a kind, in the order of this module.
EVENT_TYPES = tuple(list_event_types())
