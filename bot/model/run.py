"""A run: one request seen through from asking to proof, and what may follow what. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bot.model.approvals import ApprovalRequirements
from bot.model.plan import ResolvedPlan
from bot.model.schedule import ScheduleTiming
from runbooks import Report


class State(StrEnum):
    PLANNING = "planning"  # recorded; the host is read and the plan computed
    PENDING = "pending"  # for approvals of its digest
    QUEUED = "queued"  # approved, waits for its turn on the host
    STARTING = "starting"  # claimed, holds the lock; reads once more
    RUNNING = "running"  # at least one intent is written
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"  # a step was sent and its end is not known
    NO_CHANGES = "no_changes"  # everything was already as requested
    REFUSED = "refused"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    COUNTER_PROPOSED = "counter_proposed"  # an approver's values: the requester may accept them
    SUPERSEDED = "superseded"  # by a run with other values, which the requester accepted
    STALE = "stale"  # the host changed after the plan was shown
    STOPPED = "stopped"  # by a person, before its next step

    @property
    def phrase(self) -> str:
        """The state within a sentence: `run 7 is pending`."""
        return _PHRASES.get(self.value, self.value)


_PHRASES = {"no_changes": "finished without changes", "counter_proposed": "a counter-proposal"}


# What lists say of a run that succeeded and whose report tells of something wrong.
NEEDS_ATTENTION = "needs attention"
# All that lists say of how runs stand, and what runs are looked for by.
RUN_STATUSES: Sequence[str] = (*State, NEEDS_ATTENTION)


# Between the areas of a check on hosts of several, which no name of an area has in it.
_AREA_SEPARATOR = ", "
# How long they may be together.
MAX_AREAS_LENGTH = 1000


def get_run_status(state: State, *, needs_attention: bool) -> str:
    """Return what lists say of a run: its state, or that it needs attention."""
    return NEEDS_ATTENTION if needs_attention and state is State.SUCCEEDED else state.value


_S = State
NEXT_STATES: Mapping[State, frozenset[State]] = {
    _S.PLANNING: frozenset(
        {
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
            # The rules may want more approvals by the time that it is its turn.
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
    # Only a named person, or proof from the host, ends an unknown.
    _S.UNKNOWN: frozenset({_S.SUCCEEDED, _S.FAILED}),
}
ENDED_STATES = frozenset(state for state in State if state not in NEXT_STATES)
ACTIVE_STATES = frozenset({State.PLANNING, State.QUEUED, State.STARTING, State.RUNNING})
STATES_BEFORE_INTENT = frozenset(
    {State.PLANNING, State.COUNTER_PROPOSED, State.PENDING, State.QUEUED, State.STARTING}
)


class StepState(StrEnum):
    INTENT = "intent"  # committed before the command is sent
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class RequestOrigin:
    """Where the request was made, so that the answer finds its way back.

    source: slack, web, api, cli or schedule. channel, user: ids in the source's own terms.
    schedule_id: the number of the schedule that made the request; 0 for a person.
    """

    source: str
    channel: str = ""
    user: str = ""
    schedule_id: int = 0


@dataclass(frozen=True)
class Run:
    """What is known of one run. Times are microseconds since 1970, UTC; None means not yet.

    version: grows with each change of the row, for compare-and-set.
    kind: check or change. fields: the runbook's values as JSON text values.
    area: of its host; of a check on hosts of several areas, all of them: `core, edge`.
    needed: how many approvals; groups: whose. says: what the rules say about it.
    terms: what its approvals must come to, as the rules said when it was shown; the gate takes the
    stricter of that and of what they say by then. shown: since when it waits for approvals;
    reminded, escalated: when its approvers were reminded, and the next group was asked.
    undo_of: the run that this one takes back. request: the words and values as one line.
    parent, hosts: a request for several hosts is one run that names them in `hosts`, and one child
    run for each host, whose parent it is. Its own `host` is then the first of them.
    editors: who chose its values though they did not ask for it: they approve it no more than the
    asker does. counters: the run that this one proposes other values for. grant: the standing
    grant that stands in for its approval.
    timing: what is asked for is a schedule: nothing is sent now, but each time that it fires.
    summary: how it ended, in one sentence.
    unwell: whether its report tells of something wrong, known without reading that.
    """

    id: int
    version: int
    state: State
    runbook: str
    kind: str
    values: Mapping[str, str]
    host: str
    area: str
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
    policy_notes: Sequence[str] = ()
    requirements: ApprovalRequirements = field(default_factory=ApprovalRequirements)
    pending_since: int | None = None
    reminded_at: int | None = None
    escalated_at: int | None = None
    undo_of: int | None = None
    parent: int | None = None
    hosts: Sequence[str] = ()
    editors: Sequence[str] = ()
    proposal_for: int | None = None
    grant_id: int | None = None
    guard_override: str = ""
    """The cut set that the request may take down all the same, such as `shop: lb1, lb2`."""
    request: str = ""
    summary: str = ""
    needs_attention: bool = False
    report: Report | None = None
    timing: ScheduleTiming | None = None

    @property
    def title(self) -> str:
        """The request as it would be typed: `abusers clear lb1 203.0.113.9`."""
        asked = self.request or self.runbook
        return format_title(asked, undo_of=self.undo_of, timing=self.timing)

    @property
    def areas(self) -> Sequence[str]:
        return split_areas(self.area)

    @property
    def status(self) -> str:
        return get_run_status(self.state, needs_attention=self.needs_attention)

    @property
    def short_digest(self) -> str:
        return self.digest[:10]

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED_STATES


def join_areas(areas: Iterable[str]) -> str:
    """Return areas as one text, each of them once."""
    return _AREA_SEPARATOR.join(sorted(set(areas)))


def split_areas(areas: str) -> Sequence[str]:
    """Return the areas that were put together."""
    return areas.split(_AREA_SEPARATOR)


def format_title(request: str, *, undo_of: int | None, timing: ScheduleTiming | None) -> str:
    """Return what a run is called. asked: its words and values."""
    if timing is not None:
        return f"schedule “{timing.name}”: {request}"
    return f"undo of run {undo_of}: {request}" if undo_of else request


@dataclass(frozen=True)
class Decision:
    """One person's yes or no to a digest. yes: whether it is an approval.

    factor: the digest of the second factor that the person had just shown, "" if none.
    """

    run: int
    person: str
    approves: bool
    digest: str
    decided_at: int
    reason: str = ""
    on_behalf_of: str = ""
    factor: str = ""


def describe_proposals(run_ids: Sequence[int]) -> str:
    """Tell the approvers of a request about its open counter-proposals; "" if there are none."""
    if not run_ids:
        return ""
    where = f"run{'s' if len(run_ids) > 1 else ''} {', '.join(map(str, run_ids))}"
    return (
        f"Other values are proposed in {where}. This request stays pending until one is accepted."
    )


def format_approvers(
    decisions: Sequence[Decision], person_names: Mapping[str, str] | None = None
) -> str:
    """Return who approved, behind a comma: `, approved by adam, olga`; "" if nobody did.

    names: of people, by their ids; whoever has none there is told by their id.
    """
    known = person_names or {}
    people = ", ".join(known.get(vote.person, vote.person) for vote in decisions if vote.approves)
    return f", approved by {people}" if people else ""


@dataclass(frozen=True)
class StepRecord:
    """What became of one step. n counts from 1. output: what the host said, capped."""

    run: int
    step_number: int
    state: StepState
    sent_at: int
    ended_at: int | None = None
    exit_status: int | None = None
    output: str = ""
    error: str = ""


class IllegalTransitionError(Exception):
    """The run is in a state that this cannot follow."""


def check_transition(run: Run, new_state: State) -> None:
    """Raise IllegalMove unless *to* may follow the run's state."""
    if new_state not in NEXT_STATES.get(run.state, frozenset()):
        raise IllegalTransitionError(f"run {run.id} is {run.state} and cannot become {new_state}")
