"""A run: a request from planning to verification, with its states and transitions. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bot.model.agents import AgentOrigin, format_requester, get_agent_name
from bot.model.approvals import ApprovalRequirements
from bot.model.plan import ResolvedPlan
from bot.model.schedule import ScheduleTiming
from bot.model.sequence import SEQUENCES
from bot.model.waiting import Waiting
from connectors.errors import DomainError
from runbooks import Report


class State(StrEnum):
    PLANNING = "planning"  # recorded; Keyturn reads the host and computes the plan
    PLANNED = "planned"  # the plan is shown; the requester has not requested it yet
    PENDING = "pending"  # needs approvals of its digest
    QUEUED = "queued"  # waits until the host is free
    STARTING = "starting"  # claimed, host locked; the host is read again
    RUNNING = "running"  # at least one step is recorded as sent
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"  # a step was sent and its result is unknown
    NO_CHANGES = "no_changes"  # the host was already as requested
    REFUSED = "refused"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    COUNTER_PROPOSED = "counter_proposed"  # an approver's values: the requester may accept them
    SUPERSEDED = "superseded"  # by a run with other values or a newer plan
    STALE = "stale"  # the host changed after the plan was shown
    STOPPED = "stopped"  # by a person, before its next step

    @property
    def phrase(self) -> str:
        """The state in a sentence about the run: `is pending` in `run 7 is pending`."""
        return _PHRASES.get(self.value, f"is {self.value}")


class RefusedBy(StrEnum):
    """What refused a run."""

    POLICY = "policy"
    APPROVALS = "approvals"  # too few that count, or a standing grant that has ended
    EVIDENCE = "evidence"  # the change log does not confirm the database
    RUNBOOK = "runbook"
    GUARD = "guard"  # redundancy: a service would lose its last part
    TICKET = "ticket"
    REASON = "reason"  # the policy requires one, and none was given
    SCHEDULE = "schedule"
    ERROR = "error"  # an internal error, or no valid policy


_PHRASES = {
    "counter_proposed": "is a counter-proposal",
    "unknown": "has an unknown outcome",
    "no_changes": "finished without changes",
    **{state: f"has {state}" for state in ("succeeded", "failed", "expired")},
    **{
        state: f"was {state}"
        for state in ("denied", "refused", "stopped", "superseded", "withdrawn")
    },
}


# The status of a run that succeeded with a problem in its report.
NEEDS_ATTENTION = "needs attention"
# All statuses in lists and filters.
RUN_STATUSES: Sequence[str] = (*State, NEEDS_ATTENTION)


# Separates the areas of a check on several; names of areas cannot contain it.
_AREA_SEPARATOR = ", "
# The maximum length of the joined areas.
MAX_AREAS_LENGTH = 1000


def get_run_status(state: State, *, needs_attention: bool) -> str:
    """Return the status of a run in lists: its state, or that it needs attention."""
    return NEEDS_ATTENTION if needs_attention and state is State.SUCCEEDED else state.value


_S = State
NEXT_STATES: Mapping[State, frozenset[State]] = {
    _S.PLANNING: frozenset(
        {
            _S.PLANNED,
            _S.PENDING,
            _S.QUEUED,
            _S.SUCCEEDED,
            _S.NO_CHANGES,
            _S.REFUSED,
            _S.FAILED,
            _S.DENIED,
            _S.WITHDRAWN,
            _S.COUNTER_PROPOSED,
            _S.STOPPED,
        }
    ),
    _S.PLANNED: frozenset(
        {
            _S.PENDING,
            _S.QUEUED,
            _S.REFUSED,
            _S.EXPIRED,
            _S.WITHDRAWN,
            _S.SUPERSEDED,
            _S.STOPPED,
        }
    ),
    _S.COUNTER_PROPOSED: frozenset(
        {_S.PENDING, _S.QUEUED, _S.DENIED, _S.EXPIRED, _S.WITHDRAWN, _S.REFUSED, _S.STOPPED}
    ),
    _S.PENDING: frozenset(
        {
            _S.QUEUED,
            _S.DENIED,
            _S.EXPIRED,
            _S.WITHDRAWN,
            _S.STALE,
            _S.REFUSED,
            _S.SUPERSEDED,
            _S.STOPPED,
        }
    ),
    _S.QUEUED: frozenset(
        {
            _S.STARTING,
            # The policy may require more approvals when the run starts.
            _S.PENDING,
            _S.DENIED,
            _S.EXPIRED,
            _S.WITHDRAWN,
            _S.REFUSED,
            _S.STALE,
            _S.STOPPED,
        }
    ),
    _S.STARTING: frozenset(
        {
            _S.RUNNING,
            _S.QUEUED,
            _S.PENDING,
            _S.STALE,
            _S.REFUSED,
            _S.FAILED,
            _S.EXPIRED,
            _S.DENIED,
            _S.NO_CHANGES,
            _S.WITHDRAWN,
            _S.STOPPED,
        }
    ),
    _S.RUNNING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.UNKNOWN, _S.STOPPED}),
    # Only a person, or evidence from the host, resolves an unknown outcome.
    _S.UNKNOWN: frozenset({_S.SUCCEEDED, _S.FAILED}),
}
ENDED_STATES = frozenset(state for state in State if state not in NEXT_STATES)
ACTIVE_STATES = frozenset({State.PLANNING, State.QUEUED, State.STARTING, State.RUNNING})
STATES_BEFORE_INTENT = frozenset(
    {
        State.PLANNING,
        State.PLANNED,
        State.COUNTER_PROPOSED,
        State.PENDING,
        State.QUEUED,
        State.STARTING,
    }
)


# Without a person, they do not continue.
STATES_WAITING_FOR_PEOPLE = frozenset(
    {State.PLANNED, State.PENDING, State.COUNTER_PROPOSED, State.UNKNOWN}
)


def is_at_rest(state: State) -> bool:
    """Return whether a run in this state does not continue without a person."""
    return state in ENDED_STATES or state in STATES_WAITING_FOR_PEOPLE


# They end as expired if no one acts in time.
EXPIRING_STATES = frozenset({State.PLANNED, State.COUNTER_PROPOSED, State.PENDING, State.QUEUED})


class StepState(StrEnum):
    INTENT = "intent"  # committed before the command is sent
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


# Where requests come in, in words for people.
SOURCES: Mapping[str, str] = {
    "slack": "in Slack",
    "web": "on the web",
    "api": "through the API",
    "cli": "on the command line",
    "mcp": "as an agent",
    "schedule": "by schedule",
    "alert": "for an alert in chat",
}


def describe_source(source: str) -> str:
    """Return where a request came from, for people: `on the web`; empty for an unknown source."""
    return SOURCES.get(source, "")


@dataclass(frozen=True)
class RequestOrigin:
    """Where a request came from, and where its results are sent."""

    source: str
    """One of SOURCES."""
    channel: str = ""
    """The source's id of the channel."""
    user: str = ""
    """The source's id of the person."""
    schedule_id: int = 0
    """The schedule that made the request; 0 for a person."""
    agent: AgentOrigin | None = None
    """Whose request it is, where an agent made it."""


@dataclass(frozen=True)
class Run:
    """One run. Times are microseconds since 1970, UTC; None means not yet.

    A request for several hosts is a parent run, which lists them in `hosts`, and a child run for
    each host. The `host` of the parent is the first of them.
    """

    id: int
    version: int
    """Incremented by each change of the row, for compare-and-set."""
    state: State
    runbook: str
    kind: str
    """check or change."""
    values: Mapping[str, str]
    """The values of the runbook's fields, as text."""
    host: str
    area: str
    """The area of the host; of a check on several areas, all of them: `core, edge`."""
    requested_by: str
    origin: RequestOrigin
    reason: str
    requested_at: int
    expires_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    plan: ResolvedPlan | None = None
    digest: str = ""
    required_approvals: int = 0
    approver_groups: Sequence[str] = ()
    """The groups whose approvals count."""
    policy_notes: Sequence[str] = ()
    """What the policy's rules say about the run."""
    requirements: ApprovalRequirements = field(default_factory=ApprovalRequirements)
    """The requirements when the plan was shown. At the start, the stricter of these and of the
    current ones apply."""
    pending_since: int | None = None
    reminded_at: int | None = None
    """When the approvers were reminded."""
    escalated_at: int | None = None
    """When the next group of approvers was added."""
    undo_of: int | None = None
    """The run that this one undoes."""
    parent: int | None = None
    hosts: Sequence[str] = ()
    editors: Sequence[str] = ()
    """People other than the requester who chose values; they cannot approve the run either."""
    proposal_for: int | None = None
    """The run that this one is a counter-proposal for."""
    grant_id: int | None = None
    """The standing grant that replaces the approval."""
    guard_override: str = ""
    """The cut set that the request may take down all the same, such as `shop: lb1, lb2`."""
    ticket: str = ""
    """The key of the change ticket that it names, such as CHG0030001."""
    plan_only: bool = False
    """Whether only a plan is wanted: nothing was requested yet."""
    replan_of: int | None = None
    """The run whose plan was not current any more, and which this one replaces."""
    request: str = ""
    """Words and values in one line."""
    summary: str = ""
    """The result in one sentence."""
    refused_by: RefusedBy | None = None
    """What refused it, if it is refused."""
    waiting: Waiting | None = None
    """What it waits for, if not for people or for its turn."""
    needs_attention: bool = False
    """Whether the report contains a problem."""
    report: Report | None = None
    timing: ScheduleTiming | None = None
    """Set if the request creates a schedule: nothing runs now."""

    @property
    def title(self) -> str:
        """The request as typed: `abusers clear lb1 203.0.113.9`."""
        request = self.request or self.runbook
        return format_title(request, undo_of=self.undo_of, timing=self.timing)

    @property
    def is_sequence(self) -> bool:
        """Whether its child runs are different changes, which run one after the other."""
        return self.runbook in SEQUENCES and bool(self.hosts)

    @property
    def target_hosts(self) -> Sequence[str]:
        """The hosts that it is about: its own, or those of its child runs."""
        return self.hosts or (self.host,)

    @property
    def areas(self) -> Sequence[str]:
        return split_areas(self.area)

    @property
    def status(self) -> str:
        return get_run_status(self.state, needs_attention=self.needs_attention)

    @property
    def short_digest(self) -> str:
        return self.digest[:10]

    def matches_digest(self, digest: str) -> bool:
        """Return whether *digest* is that of the plan, or at least its first ten digits."""
        return len(digest) >= 10 and self.digest.startswith(digest)

    def describe_other_digest(self, digest: str, act: str) -> str:
        """Return why a digest is not that of the plan, and what to do. act: such as approve."""
        return (
            f"the digest {digest[:12]!r} is not that of the plan of run {self.id}, which begins "
            f"with {self.short_digest}: the plan is new, or the digest is mistyped. Review the "
            f"plan, then {act} it with its digest"
        )

    @property
    def step_count(self) -> int:
        return len(self.plan.steps) if self.plan else 0

    @property
    def lacks_ticket(self) -> bool:
        """Whether its requirements include a change ticket, and it names none."""
        return self.requirements.requires_ticket and not self.ticket

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED_STATES

    def show_references(self, show: Callable[[str], str]) -> "Run":
        """Return the run with its stored sentences as *show* returns them to a reader."""
        summary, plan = show(self.summary), self.plan
        if plan is not None and [*plan.notes] != (notes := [*map(show, plan.notes)]):
            plan = replace(plan, notes=notes)
        is_same = summary == self.summary and plan is self.plan
        return self if is_same else replace(self, summary=summary, plan=plan)

    def is_requested_for(self, person: str) -> bool:
        """Return whether the request is this person's, or an agent made it for or under them."""
        agent = self.origin.agent
        return person == self.requested_by or (
            agent is not None and person in {agent.behalf, agent.owner}
        )


@dataclass(frozen=True)
class RequestTerms:
    """Who requests something, and how."""

    person: str
    origin: RequestOrigin
    reason: str = ""
    timing: ScheduleTiming | None = None
    """Request a schedule instead of a run now."""
    guard_override: str = ""
    """The cut set that the run may take down although the redundancy guard would refuse it; needs
    a reason, and one host."""
    ticket: str = ""
    """The key of the change ticket."""
    plan_only: bool = False
    """Show the plan, and request nothing yet."""
    replaced_run: Run | None = None
    """The run that this one plans again."""


def join_areas(areas: Iterable[str]) -> str:
    """Return areas as one text, without duplicates."""
    return _AREA_SEPARATOR.join(sorted(set(areas)))


def split_areas(areas: str) -> Sequence[str]:
    """Return the areas of a text from join_areas()."""
    return areas.split(_AREA_SEPARATOR)


def format_title(request: str, *, undo_of: int | None, timing: ScheduleTiming | None) -> str:
    """Return the title of a run. request: its words and values."""
    if timing is not None:
        return f"schedule “{timing.name}”: {request}"
    return f"undo of run {undo_of}: {request}" if undo_of else request


@dataclass(frozen=True)
class Decision:
    """The approval or denial of a digest by one person."""

    run: int
    person: str
    approves: bool
    digest: str
    decided_at: int
    reason: str = ""
    on_behalf_of: str = ""
    factor: str = ""
    """The digest of the second factor that the person used for it; "" if none."""
    signature: str = ""
    """The person's signature over the plan, as ssh-keygen writes it; "" if none."""
    start_at: int | None = None
    """The earliest start that the person approves; None for as soon as possible."""


def describe_proposals(run_ids: Sequence[int]) -> str:
    """Return a note for approvers about open counter-proposals; "" if there are none."""
    if not run_ids:
        return ""
    where = f"run{'s' if len(run_ids) > 1 else ''} {', '.join(map(str, run_ids))}"
    return (
        f"Other values are proposed in {where}. This request stays pending until one is accepted."
    )


def name_requester(run: Run, person_names: Mapping[str, str]) -> str:
    """Return who requested a run: `Dora Example`, or `triage-bot for Dora Example`."""

    def get_name(person: str) -> str:
        return person_names.get(person, get_agent_name(person))

    return format_requester(run.requested_by, run.origin.agent, get_name)


def format_approvers(
    decisions: Sequence[Decision], person_names: Mapping[str, str] | None = None
) -> str:
    """Return the approvers after a comma: `, approved by adam, olga`; "" if there are none.

    person_names: names by person id; a person without one is shown by id.
    """
    names = person_names or {}
    people = ", ".join(
        describe_decider(decision, lambda person: names.get(person, person))
        for decision in decisions
        if decision.approves
    )
    return f", approved by {people}" if people else ""


def describe_decider(decision: Decision, get_name: Callable[[str], str]) -> str:
    """Return who decided: `Stan Storage on behalf of Adam Admin` where a delegate did."""
    behalf = decision.on_behalf_of
    return f"{get_name(decision.person)}{f' on behalf of {get_name(behalf)}' if behalf else ''}"


@dataclass(frozen=True)
class StepRecord:
    """The state and result of one step."""

    run: int
    step_number: int
    """From 1."""
    state: StepState
    sent_at: int
    ended_at: int | None = None
    exit_status: int | None = None
    output: str = ""
    """The command's output, truncated."""
    error: str = ""


class IllegalTransitionError(DomainError):
    """The run cannot change from its state to the new one."""

    code, status = "too-late", 409


def check_transition(run: Run, new_state: State) -> None:
    """Raise IllegalTransitionError unless *new_state* may follow the run's state."""
    if new_state not in NEXT_STATES.get(run.state, frozenset()):
        raise IllegalTransitionError(f"run {run.id} is {run.state} and cannot become {new_state}")
