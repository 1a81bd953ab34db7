"""The one view model of a run: what every source shows of it, and what a viewer may do.

It is built once, in one transaction. Pages, chat and API draw it and decide nothing themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db import break_glass as db_break_glass
from bot.db import grants, live_output, locks, runs, stops
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.db.grants import Grant
from bot.db.live_output import LiveOutput
from bot.db.locks import Lock
from bot.model.plan import PlannedStep
from bot.model.run import BEFORE_INTENT, Run, State, StepRecord, StepState, Vote
from bot.policy import Person, Policy, Request
from bot.workflow.approval_count import count_approvals
from bot.workflow.approvals import is_vote_complete
from bot.workflow.break_glass import can_review
from bot.workflow.break_glass_rules import why_not_break_glass
from bot.workflow.delegation_rules import list_current_delegates
from bot.workflow.pending import can_decide, can_settle, why_frozen_after_approval
from bot.workflow.schedule_facts import ScheduleFacts, get_schedule_facts
from bot.workflow.second_factor import get_shown_factor
from bot.workflow.stopping import can_stop

_UNDER_WAY = frozenset({State.STARTING, State.RUNNING, State.UNKNOWN})


@dataclass(frozen=True)
class Powers:
    """What the viewer may do to the run now."""

    approve: bool = False
    deny: bool = False
    withdraw: bool = False
    settle: bool = False
    undo: bool = False
    why_no_undo: str = ""
    """Empty where the question does not arise."""
    break_glass: bool = False
    review: bool = False
    accept: bool = False
    counter: bool = False
    stop: bool = False

    @property
    def any(self) -> bool:
        return (
            self.approve
            or self.deny
            or self.withdraw
            or self.settle
            or self.undo
            or self.review
            or self.stop
        )


@dataclass(frozen=True)
class RunView:
    """A run as it is now."""

    run: Run
    now: int
    """Microseconds, by the database's clock."""
    votes: Sequence[Vote] = ()
    records: Mapping[int, StepRecord] = field(default_factory=dict[int, StepRecord])
    """What became of the steps that were sent, by their numbers."""
    children: Sequence[Run] = ()
    """The runs of a request for several hosts, one for each."""
    whose: str = ""
    """The groups whose approval it takes, in words: `the owners of the edge`."""
    missing: int = 0
    """How many more approvals it takes."""
    approvers: Sequence[Person] = ()
    """Everyone whose approval would count."""
    delegates: Sequence[tuple[str, str]] = ()
    """Ids of who else could approve, and on behalf of whom."""
    grant: tuple[Grant, int] | None = None
    """The standing grant that replaces the approvals, and how many runs it has left this hour."""
    takes_second_factor: bool = False
    schedule: ScheduleFacts | None = None
    """What is approved, of a request for a schedule."""
    proposals: Sequence[int] = ()
    """The numbers of open counter-proposals."""
    frozen: str = ""
    """Why the run waits once it is approved; empty if no freeze holds it now."""
    glass: BreakGlass | None = None
    lock: Lock | None = None
    """The lock on the run's host."""
    entries: Sequence[Entry] = ()
    live_output: Sequence[LiveOutput] = ()
    """What hosts print now, or printed last before the connection broke."""
    powers: Powers = Powers()
    stepped_up: bool = False
    """The viewer has just shown a second factor."""

    @property
    def steps(self) -> Sequence[tuple[int, PlannedStep, StepRecord | None]]:
        """The planned steps, each with its number and what became of it."""
        planned = self.run.proposal.steps if self.run.proposal else ()
        return [(n, step, self.records.get(n)) for n, step in enumerate(planned, start=1)]

    @property
    def children_done(self) -> int:
        return sum(child.over for child in self.children)

    @property
    def hosts_under_way(self) -> Sequence[str]:
        return [child.host for child in self.children if child.state in _UNDER_WAY]


@dataclass(frozen=True)
class Viewer:
    """Who views a run, and in which web session; powers are worked out for a person only."""

    person: str = ""
    session: str = ""


def build_run_view(
    tx: Transaction,
    number: int,
    policy: Policy | None,
    viewer: Viewer = Viewer(),
    *,
    with_log: bool = True,
) -> RunView:
    """Read a run and all that is shown of it in one consistent state.

    Args:
        policy: None while there is no valid one; then nothing that depends on it is shown.
        with_log: Whether its log entries, its lock and its live output are shown.

    Raises:
        NoSuchRun: There is none, or this transaction may not view it.
    """
    run = runs.get_run(tx, number)
    sent = runs.list_steps_of_children(tx, number) if run.hosts else runs.list_steps(tx, number)
    view = RunView(
        run=run,
        now=tx.now,
        votes=runs.list_votes(tx, number),
        records={record.n: record for record in sent},
        children=runs.list_children(tx, number) if run.hosts else (),
        grant=_get_grant(tx, run),
        schedule=get_schedule_facts(tx, run),
        proposals=runs.open_proposals(tx, number) if run.state is State.WAITING else (),
        glass=db_break_glass.get_break_glass(tx, number),
    )
    if with_log:
        view = replace(
            view,
            lock=locks.get_lock(tx, run.host),
            entries=change_log.list_entries_of_run(tx, number),
            live_output=() if run.over else live_output.get_live_output(tx, number),
        )
    return view if policy is None else _add_policy(tx, view, policy, viewer)


def _add_policy(tx: Transaction, view: RunView, policy: Policy, viewer: Viewer) -> RunView:
    """Add what the policy says of the run, and of its viewer."""
    run = view.run
    counted = count_approvals(tx, policy, run)
    request, ruling = counted.request, counted.ruling
    is_open = run.state in BEFORE_INTENT
    known = run.host in policy.inventory.hosts
    missing = counted.missing if is_open else 0
    view = replace(
        view,
        whose=policy.whose(ruling.terms) if known and ruling.groups else "",
        # While a run needs approval, at least one is missing, whatever the rules say by now.
        missing=max(missing, 1) if run.state is State.WAITING else missing,
        approvers=policy.approvers(request, ruling) if is_open else (),
        delegates=list_current_delegates(tx, policy, request, ruling) if is_open else (),
        takes_second_factor=ruling.step_up,
        frozen=why_frozen_after_approval(policy, run, now=tx.now),
    )
    if not viewer.person:
        return view
    shown = get_shown_factor(tx, policy, person=viewer.person, session=viewer.session)
    powers = _list_powers(tx, view, policy, viewer.person)
    return replace(view, powers=powers, stepped_up=bool(shown))


def _get_grant(tx: Transaction, run: Run) -> tuple[Grant, int] | None:
    if run.grant is None:
        return None
    grant = grants.get_grant(tx, run.grant)
    return grant, grants.count_left(tx, grant, run.id)


def _list_powers(tx: Transaction, view: RunView, policy: Policy, person: str) -> Powers:
    run = view.run
    begun = run.state not in BEFORE_INTENT
    # A child run is decided with its parent.
    decides = run.parent is None and not begun and can_decide(tx, policy, run, person)
    voted = any(
        vote.person == person and is_vote_complete(tx, policy, run, vote) for vote in view.votes
    )
    is_pending = run.state is State.WAITING
    why_no_undo = _why_no_undo(view, policy, person)
    return Powers(
        approve=decides and not voted and is_pending,
        deny=decides or (bool(run.editors) and _can_deny_own_values(tx, run, policy, person)),
        accept=run.state is State.OFFERED and run.asked_by == person,
        counter=decides and is_pending and run.undo_of is None and run.timing is None,
        withdraw=not begun and run.asked_by == person and run.parent is None,
        settle=can_settle(policy, run, person),
        undo=_has_done_something(view) and not why_no_undo,
        why_no_undo=why_no_undo,
        break_glass=_can_break_glass(view, policy, person),
        review=_can_review(view, policy, person),
        stop=_can_stop(tx, run, policy, person),
    )


def _can_deny_own_values(tx: Transaction, run: Run, policy: Policy, person: str) -> bool:
    """Return whether an owner may deny the run although they chose its values."""
    if run.parent is not None or run.state not in BEFORE_INTENT:
        return False
    return can_decide(tx, policy, replace(run, editors=()), person)


def _can_stop(tx: Transaction, run: Run, policy: Policy, person: str) -> bool:
    """Return whether the person may end a run that is approved or under way."""
    moving = run.state in {State.READY, State.STARTING, State.RUNNING} and run.parent is None
    stopped = stops.get_stop_of_run(tx, run) is not None
    return moving and not stopped and can_stop(policy, run, person)


def _can_break_glass(view: RunView, policy: Policy, person: str) -> bool:
    """Return whether the run waits for what break-glass bypasses, and the person may use it."""
    run = view.run
    if run.state not in {State.WAITING, State.READY} or run.host not in policy.inventory.hosts:
        return False
    frozen = policy.frozen(host=run.host, runbook=run.words, now=view.now)
    is_held = run.state is State.WAITING or bool(frozen)
    is_broken = view.glass is not None and view.glass.broken is not None
    return is_held and not is_broken and not why_not_break_glass(policy, run, person, now=view.now)


def _can_review(view: RunView, policy: Policy, person: str) -> bool:
    if view.glass is None or view.glass.review_due is None:
        return False
    return can_review(policy, view.run, person, now=view.now)


def _has_done_something(view: RunView) -> bool:
    run = view.run
    done = any(record.state is not StepState.FAILED for record in view.records.values())
    return run.kind == "change" and run.over and run.proposal is not None and done


def _why_no_undo(view: RunView, policy: Policy, person: str) -> str:
    """Return why the person cannot request the undo; empty if they can."""
    run = view.run
    if not _has_done_something(view) or run.proposal is None:
        return ""
    if run.undo_of is not None:
        return "This run is an undo. Request the original again instead."
    lasting = [step for step in run.proposal.steps if step.undo is None]
    if lasting:
        return f"“{lasting[0].title}” cannot be undone: {lasting[0].no_undo}."
    request = Request(
        runbook=run.words, kind=run.kind, host=run.host, door="web", asked_by=person, now=view.now
    )
    ruling = policy.may_ask(request)
    if ruling.allowed:
        return ""
    return (
        f"The policy does not allow you to request it: {'; '.join(ruling.says) or 'no rule does'}."
    )
