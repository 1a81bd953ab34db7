"""A run: one request seen through from asking to proof, and what may follow what. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bot.model.approvals import ApprovalRequirements
from bot.model.plan import ResolvedPlan
from bot.model.schedule import ScheduleTiming
from runbooks import Report


class State(StrEnum):
    ASKED = "asked"  # recorded; to be read and planned
    WAITING = "waiting"  # for approvals of its digest
    READY = "ready"  # approved; waits for its turn on the host
    STARTING = "starting"  # claimed, holds the lock; reads once more
    RUNNING = "running"  # at least one intent is written
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"  # a step began and nobody saw its end
    UNCHANGED = "unchanged"  # all was already as asked
    REFUSED = "refused"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    OFFERED = "offered"  # an approver's values: waits for its asker to accept them
    REPLACED = "replaced"  # by a run with other values, which its asker accepted
    STALE = "stale"  # its world moved after it was shown
    STOPPED = "stopped"  # by a person, before its next step


# What lists say of a run that succeeded and whose report tells of something wrong.
ATTENTION = "needs attention"
# All that lists say of how runs stand, and what runs are looked for by.
STANDINGS: Sequence[str] = (*State, ATTENTION)


# Between the areas of a check on hosts of several, which no name of an area has in it.
_AND = ", "
# How long they may be together.
LONGEST_AREAS = 1000


def status_of(state: State, *, unwell: bool) -> str:
    """Return what lists say of a run: its state, or that it needs attention."""
    return ATTENTION if unwell and state is State.SUCCEEDED else state.value


_S = State
FOLLOWS: Mapping[State, frozenset[State]] = {
    _S.ASKED: frozenset(
        {
            _S.WAITING,
            _S.READY,
            _S.SUCCEEDED,
            _S.UNCHANGED,
            _S.REFUSED,
            _S.FAILED,
            _S.DENIED,
            _S.WITHDRAWN,
            _S.OFFERED,
            _S.STOPPED,
        }
    ),
    _S.OFFERED: frozenset(
        {_S.WAITING, _S.READY, _S.DENIED, _S.EXPIRED, _S.WITHDRAWN, _S.REFUSED, _S.STOPPED}
    ),
    _S.WAITING: frozenset(
        {
            _S.READY,
            _S.DENIED,
            _S.EXPIRED,
            _S.WITHDRAWN,
            _S.STALE,
            _S.REFUSED,
            _S.REPLACED,
            _S.STOPPED,
        }
    ),
    _S.READY: frozenset(
        {
            _S.STARTING,
            # The rules may want more approvals by the time that it is its turn.
            _S.WAITING,
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
            _S.READY,
            _S.WAITING,
            _S.STALE,
            _S.REFUSED,
            _S.FAILED,
            _S.EXPIRED,
            _S.DENIED,
            _S.UNCHANGED,
            _S.WITHDRAWN,
            _S.STOPPED,
        }
    ),
    _S.RUNNING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.UNKNOWN, _S.STOPPED}),
    # Only a named person, or proof from the host, ends an unknown.
    _S.UNKNOWN: frozenset({_S.SUCCEEDED, _S.FAILED}),
}
ENDED = frozenset(state for state in State if state not in FOLLOWS)
AT_WORK = frozenset({State.ASKED, State.READY, State.STARTING, State.RUNNING})
BEFORE_INTENT = frozenset({State.ASKED, State.OFFERED, State.WAITING, State.READY, State.STARTING})


class StepState(StrEnum):
    INTENT = "intent"  # committed before the command is sent
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Origin:
    """Where the request was made, so that the answer finds its way back.

    door: slack, web, api, cli or schedule. channel, user: ids in the door's own terms.
    schedule: the number of the schedule that asked; 0 if a person did.
    """

    door: str
    channel: str = ""
    user: str = ""
    schedule: int = 0


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
    words: str
    kind: str
    fields: Mapping[str, str]
    host: str
    area: str
    asked_by: str
    origin: Origin
    reason: str
    asked: int
    expires: int | None = None
    started: int | None = None
    ended: int | None = None
    proposal: ResolvedPlan | None = None
    digest: str = ""
    needed: int = 0
    groups: Sequence[str] = ()
    says: Sequence[str] = ()
    terms: ApprovalRequirements = field(default_factory=ApprovalRequirements)
    shown: int | None = None
    reminded: int | None = None
    escalated: int | None = None
    undo_of: int | None = None
    parent: int | None = None
    hosts: Sequence[str] = ()
    editors: Sequence[str] = ()
    counters: int | None = None
    grant: int | None = None
    request: str = ""
    summary: str = ""
    unwell: bool = False
    report: Report | None = None
    timing: ScheduleTiming | None = None

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> "Run":
        """Return the run of which all of this is known, by the names above.

        Its constructor sets each of them by itself, and so takes eight times as long.
        """
        if len(known) != len(cls.__dataclass_fields__):
            wrong = cls.__dataclass_fields__.keys() ^ known.keys()
            raise TypeError(f"not what a run is made of: {', '.join(sorted(wrong))}")
        run = object.__new__(cls)
        vars(run).update(known)
        return run

    @property
    def title(self) -> str:
        """The request as it would be typed: `abusers clear lb1 203.0.113.9`."""
        asked = self.request or self.words
        return format_title(asked, undo_of=self.undo_of, timing=self.timing)

    @property
    def areas(self) -> Sequence[str]:
        return split_areas(self.area)

    @property
    def standing(self) -> str:
        return status_of(self.state, unwell=self.unwell)

    @property
    def short_digest(self) -> str:
        return self.digest[:10]

    @property
    def over(self) -> bool:
        return self.state in ENDED


def join_areas(areas: Iterable[str]) -> str:
    """Return areas as one text, each of them once."""
    return _AND.join(sorted(set(areas)))


def split_areas(areas: str) -> Sequence[str]:
    """Return the areas that were put together."""
    return areas.split(_AND)


def format_title(asked: str, *, undo_of: int | None, timing: ScheduleTiming | None) -> str:
    """Return what a run is called. asked: its words and values."""
    if timing is not None:
        return f"schedule “{timing.name}”: {asked}"
    return f"undo of run {undo_of}: {asked}" if undo_of else asked


@dataclass(frozen=True)
class Vote:
    """One person's yes or no to a digest. yes: whether it is an approval.

    factor: the digest of the second factor that the person had just shown, "" if none.
    """

    run: int
    person: str
    yes: bool
    digest: str
    at: int
    reason: str = ""
    instead_of: str = ""
    factor: str = ""


def describe_proposals(numbers: Sequence[int]) -> str:
    """Tell the approvers of a request about its open counter-proposals; "" if there are none."""
    if not numbers:
        return ""
    where = f"run{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    return (
        f"Other values are proposed in {where}. This request stays pending until one is accepted."
    )


def format_approvers(votes: Sequence[Vote], names: Mapping[str, str] | None = None) -> str:
    """Return who approved, behind a comma: `, approved by adam, olga`; "" if nobody did.

    names: of people, by their ids; whoever has none there is told by their id.
    """
    known = names or {}
    people = ", ".join(known.get(vote.person, vote.person) for vote in votes if vote.yes)
    return f", approved by {people}" if people else ""


@dataclass(frozen=True)
class StepRecord:
    """What became of one step. n counts from 1. output: what the host said, capped."""

    run: int
    n: int
    state: StepState
    sent: int
    ended: int | None = None
    status: int | None = None
    output: str = ""
    trouble: str = ""


class IllegalMove(Exception):
    """The run is in a state that this cannot follow."""


def check_move(run: Run, to: State) -> None:
    """Raise IllegalMove unless *to* may follow the run's state."""
    if to not in FOLLOWS.get(run.state, frozenset()):
        raise IllegalMove(f"run {run.id} is {run.state} and cannot become {to}")
