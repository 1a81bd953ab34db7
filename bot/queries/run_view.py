"""The view model of a run: what pages, chat, API and CLI show, and what a viewer may do.

It is built once, in one transaction. Pages, chat, API and CLI render it and decide nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.db import break_glass as db_break_glass
from bot.db import grants, live_output, locks, runs, search, stops
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.db.grants import Grant
from bot.db.live_output import LiveOutput
from bot.db.locks import Lock
from bot.db.runs import NoSuchRun
from bot.db.search import RunFilter
from bot.model.plan import PlannedStep
from bot.model.resubmit import can_be_planned_again
from bot.model.run import STATES_BEFORE_INTENT, Decision, Run, State, StepRecord, StepState
from bot.model.run_states import StatusDisplay, get_child_run_display, starts_later
from bot.model.text import format_count
from bot.policy import Person, Policy, PolicyRequest
from bot.policy.explain import NO_APPROVER, describe_ending_stop, describe_signing
from bot.queries.approval_count import (
    ApprovalCount,
    count_approvals,
    is_decision_complete,
    show_requirements,
)
from bot.queries.break_glass_rules import can_review, get_break_glass_refusal
from bot.queries.delegation_rules import list_active_delegates
from bot.queries.open_probation import OpenProbation, get_open_probation
from bot.queries.pending import (
    CounterProposal,
    can_decide,
    can_resolve,
    can_stop,
    describe_expiry_before_freeze_ends,
    get_counter_proposal,
    get_freeze_after_approval,
    get_hold_refusal,
)
from bot.queries.policy_result import is_plan_current
from bot.queries.questions import (
    Discussion,
    get_discussion,
    list_possible_assignees,
    read_discussion,
)
from bot.queries.schedule_details import ScheduleDetails, describe_schedule
from bot.queries.second_factor import get_shown_factor
from bot.queries.standing_grants import find_grant
from bot.queries.stop_reasons import describe_active_stop

_UNFINISHED_STATES = frozenset({State.STARTING, State.RUNNING, State.UNKNOWN})
_STATES_ON_PROBATION = frozenset({State.RUNNING, State.UNKNOWN})

# How many earlier runs of the runbook are searched for one with the same values.
_MAX_EARLIER_RUNS = 500


@dataclass(frozen=True)
class AllowedActions:
    """What the viewer may do to the run now."""

    approve: bool = False
    approve_refusal: str = ""
    """Why a viewer who may decide it cannot approve it now, as a sentence; empty if they can."""
    deny: bool = False
    withdraw: bool = False
    resolve: bool = False
    undo: bool = False
    undo_refusal: str = ""
    """Empty where the question does not arise."""
    break_glass: bool = False
    break_glass_refusal: str = ""
    """Why the viewer cannot use the break-glass that they requested."""
    review: bool = False
    accept: bool = False
    propose_values: bool = False
    hold: bool = False
    """Hold a run that starts later: it then needs its approvals again."""
    stop: bool = False
    submit: bool = False
    """Request what the plan shows."""
    replan: bool = False
    ask: bool = False
    """Ask the requester a question."""
    answer: bool = False
    """Answer an open question of an approver."""
    sign: bool = False
    """Sign the plan that the viewer requested."""
    assignees: Sequence[Person] = ()
    """To whom the viewer may reassign the run."""

    @property
    def names(self) -> Sequence[str]:
        """The actions by name, as the API and the command line call them."""
        allowed = [one.name for one in fields(self) if getattr(self, one.name) is True]
        return [*allowed, *(["reassign"] if self.assignees else [])]


@dataclass(frozen=True)
class RunView:
    """A run as it is now."""

    run: Run
    """While it is open, it requires what the rules require now."""
    now: int
    """Microseconds, by the database's clock."""
    parent_state: State | None = None
    """Of a child run: it is requested and approved with its parent."""
    planned_at: int | None = None
    """When the host was read for the plan."""
    previous_run: int | None = None
    """The run of the same command before this one, if the viewer may view one."""
    active_stop: str = ""
    """Who stopped everything, and why; empty if nothing is stopped."""
    decisions: Sequence[Decision] = ()
    step_records: Mapping[int, StepRecord] = field(default_factory=dict[int, StepRecord])
    """What became of the steps that were sent, by their numbers."""
    children: Sequence[Run] = ()
    """The runs of a request for several hosts, one for each."""
    approvals_from: str = ""
    """The groups whose approval it takes, in words: `the owners of the edge`."""
    missing_approvals: int = 0
    """How many more approvals it takes, and at least so many while it has no plan. Of a plan that
    is not requested, a standing grant replaces them."""
    approvers: Sequence[Person] = ()
    """Everyone whose approval would count."""
    delegates: Sequence[tuple[Person, Person]] = ()
    """Who else could approve, and on behalf of whom."""
    grant: tuple[Grant, int] | None = None
    """The standing grant that replaces the approvals, and how many runs it has left this hour."""
    may_need_more: bool = False
    """Whether a rule depends on the redundancy that the gate finds when the plan starts."""
    lacks_signed_request: bool = False
    """Whether the requester has to sign the plan before it is approved."""
    schedule: ScheduleDetails | None = None
    """What is approved, of a request for a schedule."""
    proposals: Sequence[int] = ()
    """The numbers of open counter-proposals."""
    counter_proposal: CounterProposal | None = None
    """Of a counter-proposal that is not accepted yet: who proposed the values, and why."""
    discussion: Discussion = field(default_factory=Discussion)
    """Questions, answers and the assignment to an approver."""
    open_probation: OpenProbation | None = None
    """The change that its host restores unless it is kept."""
    freeze_after_approval: str = ""
    """Why the run waits once it is approved; empty if no freeze holds it now."""
    expiry_before_freeze_ends: str = ""
    """What becomes of a run whose approval expires before the freeze that holds it ends."""
    break_glass: BreakGlass | None = None
    lock: Lock | None = None
    """The lock on the run's host."""
    entries: Sequence[Entry] = ()
    live_output: Sequence[LiveOutput] = ()
    """What hosts print now, or printed last before the connection broke."""
    allowed_actions: AllowedActions = AllowedActions()
    is_stepped_up: bool = False
    """The viewer has just shown a second factor."""

    @property
    def steps(self) -> Sequence[tuple[int, PlannedStep, StepRecord | None]]:
        """The planned steps, each with its number and what became of it."""
        planned = self.run.plan.steps if self.run.plan else ()
        return [(n, step, self.step_records.get(n)) for n, step in enumerate(planned, start=1)]

    @property
    def display(self) -> StatusDisplay:
        """How the state of the run is displayed."""
        return get_child_run_display(self.run, self.parent_state)

    @property
    def awaits_signature(self) -> bool:
        """Whether no one can approve the run until its requester has signed the plan."""
        return self.run.state is State.PENDING and self.lacks_signed_request

    @property
    def can_sign(self) -> bool:
        """Whether the viewer can sign the plan now, as its requester or to approve it."""
        allowed = self.allowed_actions
        return allowed.sign or (allowed.approve and self.run.requirements.requires_signature)

    @property
    def plan_state_label(self) -> str:
        """What the state of the host in the plan is now: a change that has started has left it."""
        return "State before" if self.run.started_at else "State when planned"

    @property
    def approver_names(self) -> Sequence[str]:
        """Everyone who could approve: `Olga Owner`, `Stan Storage on behalf of Adam Admin`."""
        delegates = [
            f"{delegate.name} on behalf of {owner.name}" for delegate, owner in self.delegates
        ]
        return [*(one.name for one in self.approvers), *delegates]

    @property
    def given_approvals(self) -> int:
        """How many of the required approvals it has."""
        if not self.approvals_from:
            # Nothing is known of the rules: without a valid policy, or of a host that is gone.
            return sum(decision.approves for decision in self.decisions)
        return max(self.run.required_approvals - self.missing_approvals, 0)

    @property
    def forecast(self) -> str:
        """What becomes of a plan if it is requested now; empty for a run that was requested."""
        if self.run.state is not State.PLANNED:
            return ""
        if self.active_stop:
            return describe_ending_stop(self.active_stop)
        if self.missing_approvals:
            names = ", ".join(self.approver_names) or NO_APPROVER
            needed = format_count(self.missing_approvals, "approval")
            needed = f"at least {needed}" if self.may_need_more else needed
            first = f"It needs {needed} from {self.approvals_from}: {names}."
            signed = (
                describe_signing("The requester", of_request=self.lacks_signed_request)
                if self.run.requirements.requires_signature
                else ""
            )
            return " ".join(filter(None, [first, signed, self.hold_notice]))
        none = "no approval, at least until it starts" if self.may_need_more else "no approval"
        if self.freeze_after_approval and not self.schedule:
            return f"It needs {none}, but a freeze holds it: {self.freeze_after_approval}."
        starts = "the schedule starts" if self.schedule else "it runs"
        return f"It needs {none}: {starts} as soon as you request it."

    @property
    def submit_label(self) -> str:
        """What requesting a plan does now, for its button."""
        if self.missing_approvals:
            return "Request approval"
        return "Start schedule" if self.schedule else "Run now"

    @property
    def hold_notice(self) -> str:
        """Which freeze holds the run once it is approved or requested; empty if none does."""
        if not self.freeze_after_approval:
            return ""
        is_approved = self.run.state is State.PLANNED and not self.missing_approvals
        after = "it is requested" if is_approved else "approval"
        return f"After {after} the run stays on hold: {self.freeze_after_approval}."

    @property
    def has_executed_steps(self) -> bool:
        """Whether it is a change that has ended after commands which may have had an effect."""
        run = self.run
        done = any(record.state is not StepState.FAILED for record in self.step_records.values())
        return run.kind == "change" and run.is_ended and run.plan is not None and done

    @property
    def ended_children_count(self) -> int:
        return sum(child.is_ended for child in self.children)

    @property
    def unfinished_hosts(self) -> Sequence[str]:
        return [child.host for child in self.children if child.state in _UNFINISHED_STATES]


@dataclass(frozen=True)
class Viewer:
    """Who views a run, and in which web session. Without a person, no actions are allowed."""

    person: str = ""
    session: str = ""


def build_run_view(
    tx: Transaction,
    run_id: int,
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
    run = runs.get_run(tx, run_id)
    sent = runs.list_steps_of_children(tx, run_id) if run.hosts else runs.list_steps(tx, run_id)
    view = RunView(
        run=run,
        now=tx.now,
        parent_state=_get_parent_state(tx, run),
        active_stop=describe_active_stop(tx, policy) if run.state is State.PLANNED else "",
        decisions=runs.list_decisions(tx, run_id),
        step_records={record.step_number: record for record in sent},
        children=runs.list_children(tx, run_id) if run.hosts else (),
        grant=_get_grant(tx, run),
        schedule=describe_schedule(run, now=tx.now),
        proposals=runs.list_open_proposals(tx, run_id) if run.state is State.PENDING else (),
        counter_proposal=get_counter_proposal(tx, run)
        if run.state is State.COUNTER_PROPOSED
        else None,
        break_glass=db_break_glass.get_break_glass(tx, run_id),
        open_probation=get_open_probation(run, sent)
        if run.state in _STATES_ON_PROBATION
        else None,
    )
    if with_log:
        view = replace(
            view,
            lock=locks.get_lock(tx, run.host),
            previous_run=_get_previous_run(tx, run),
            entries=change_log.list_entries_of_run(tx, run_id),
            live_output=() if run.is_ended else live_output.get_live_output(tx, run_id),
        )
    discussion = read_discussion(view.entries) if with_log else get_discussion(tx, run_id)
    view = replace(view, discussion=discussion, planned_at=_get_planned_at(tx, run))
    return view if policy is None else _add_policy(tx, view, policy, viewer)


def _add_policy(tx: Transaction, view: RunView, policy: Policy, viewer: Viewer) -> RunView:
    """Add what the policy says of the run, and of its viewer."""
    run = view.run
    counted = count_approvals(tx, policy, run)
    request, ruling = counted.request, counted.ruling
    is_open = run.state in STATES_BEFORE_INTENT
    known = run.host in policy.inventory.hosts
    missing = counted.missing_approvals if is_open else 0
    if run.state is State.PLANNED and find_grant(tx, policy, run, request, ruling)[0] is not None:
        missing = 0
    if is_open:
        run = show_requirements(run, ruling)
    view = replace(
        view,
        run=run,
        approvals_from=policy.describe_approver_groups(ruling.requirements)
        if known and ruling.approver_groups
        else "",
        # While a run is pending, at least one approval is missing, even if the rules have changed.
        missing_approvals=max(missing, 1) if run.state is State.PENDING else missing,
        approvers=policy.list_approvers(request, ruling) if is_open else (),
        delegates=_list_delegates(tx, policy, counted) if is_open else (),
        may_need_more="margin" in policy.mentions and bool(run.plan and run.plan.takes_down),
        lacks_signed_request=is_open and counted.lacks_signed_request,
        freeze_after_approval=get_freeze_after_approval(policy, run, now=tx.now),
        expiry_before_freeze_ends=describe_expiry_before_freeze_ends(policy, run, now=tx.now),
    )
    if not viewer.person:
        return view
    factor = get_shown_factor(tx, policy, person=viewer.person, session=viewer.session)
    actions = _list_allowed_actions(tx, view, counted, viewer.person)
    return replace(view, allowed_actions=actions, is_stepped_up=bool(factor))


def _list_delegates(
    tx: Transaction, policy: Policy, counted: ApprovalCount
) -> Sequence[tuple[Person, Person]]:
    pairs = [
        (policy.find_person(delegate), policy.find_person(owner))
        for delegate, owner in list_active_delegates(tx, policy, counted.request, counted.ruling)
    ]
    return [(delegate, owner) for delegate, owner in pairs if delegate and owner]


def _get_parent_state(tx: Transaction, run: Run) -> State | None:
    """Return the state of the parent, if the run has one that the viewer may view."""
    if run.parent is None:
        return None
    try:
        return runs.get_run(tx, run.parent).state
    except NoSuchRun:
        return None


def find_previous_run(tx: Transaction, run: Run) -> Run | None:
    """Return the newest earlier run of the same runbook, hosts and values.

    A parent run is compared with a parent run, and a child run with a child run.
    """
    wanted = RunFilter(host=None if run.hosts else run.host, runbook=run.runbook, before=run.id)
    numbers = search.find_run_numbers(tx, wanted, most=_MAX_EARLIER_RUNS)
    command = _get_command(run)
    earlier = (one for one in runs.list_runs(tx, numbers) if _get_command(one) == command)
    found = max(earlier, key=lambda one: one.id, default=None)
    return found and runs.get_run(tx, found.id)


def _get_command(run: Run) -> tuple[bool, frozenset[str], dict[str, str]]:
    return run.parent is not None, frozenset(run.hosts), dict(run.values)


def _get_previous_run(tx: Transaction, run: Run) -> int | None:
    previous = find_previous_run(tx, run)
    return previous.id if previous else None


def _get_planned_at(tx: Transaction, run: Run) -> int | None:
    if run.plan is None:
        return None
    planned = change_log.list_entries_of_run(tx, run.id, [events.Planned.kind])
    return max((entry.at for entry in planned), default=None)


def _get_grant(tx: Transaction, run: Run) -> tuple[Grant, int] | None:
    if run.grant_id is None:
        return None
    grant = grants.get_grant(tx, run.grant_id)
    return grant, grants.count_left(tx, grant, run.id)


def _list_allowed_actions(
    tx: Transaction, view: RunView, counted: ApprovalCount, person: str
) -> AllowedActions:
    run, policy = view.run, counted.policy
    begun = run.state not in STATES_BEFORE_INTENT
    # A child run is decided with its parent.
    is_open = run.parent is None and not begun and not run.plan_only
    decides = is_open and can_decide(tx, policy, run, person)
    voted = any(
        vote.person == person and is_decision_complete(tx, policy, run, vote, counted.ruling)
        for vote in view.decisions
    )
    is_pending = run.state is State.PENDING
    denies_own = (
        not decides and bool(run.editors) and _can_deny_own_values(tx, run, policy, person)
    )
    undo_refusal = _get_undo_refusal(view, policy, person)
    is_held = run.requested_by == person and _is_held(view, policy)
    break_glass_refusal = (
        get_break_glass_refusal(policy, run, person, now=view.now) if is_held else ""
    )
    return AllowedActions(
        approve=decides and not voted and is_pending and not view.awaits_signature,
        approve_refusal=_get_approve_refusal(view, policy, voted=voted, own_values=denies_own)
        if decides or denies_own
        else "",
        sign=view.awaits_signature and run.requested_by == person,
        deny=decides or denies_own,
        accept=run.state is State.COUNTER_PROPOSED and run.requested_by == person,
        propose_values=decides and is_pending and can_be_edited(run),
        submit=run.state is State.PLANNED and run.requested_by == person,
        replan=run.requested_by == person and _can_replan(tx, run, policy),
        ask=decides and is_pending,
        answer=is_pending and view.discussion.has_open_question and run.is_requested_for(person),
        assignees=_list_assignees(tx, view, policy) if decides and is_pending else (),
        withdraw=not begun and run.is_requested_for(person) and run.parent is None,
        resolve=can_resolve(policy, run, person),
        undo=view.has_executed_steps and not undo_refusal,
        undo_refusal=undo_refusal,
        break_glass=is_held and not break_glass_refusal,
        break_glass_refusal=break_glass_refusal if is_held and view.break_glass else "",
        review=_can_review(view, policy, person),
        stop=_can_stop(tx, run, policy, person),
        hold=starts_later(run) and not get_hold_refusal(tx, policy, run, person),
    )


def _get_approve_refusal(view: RunView, policy: Policy, *, voted: bool, own_values: bool) -> str:
    """Return why one of the people who may deny a run cannot approve it now; "" if they can."""
    if own_values:
        return "You chose values of this request, so someone else has to approve it."
    if view.awaits_signature:
        name = policy.get_person_name(view.run.requested_by)
        return f"{name} has to sign the plan first."
    if voted:
        return "You have approved this request."
    state = view.run.state
    return "" if state is State.PENDING else f"Run {view.run.id} {state.phrase}."


def can_be_edited(run: Run) -> bool:
    """Return whether an approver may propose other values. An agent accepts none."""
    return run.undo_of is None and run.timing is None and run.origin.agent is None


def _list_assignees(tx: Transaction, view: RunView, policy: Policy) -> Sequence[Person]:
    assignee = view.discussion.assignee
    return [one for one in list_possible_assignees(tx, policy, view.run) if one.id != assignee]


def _can_replan(tx: Transaction, run: Run, policy: Policy) -> bool:
    """Return whether a new plan makes sense: the run has none that is current."""
    if not can_be_planned_again(run):
        return False
    return run.state is State.PLANNED or not is_plan_current(tx, policy, run)


def _can_deny_own_values(tx: Transaction, run: Run, policy: Policy, person: str) -> bool:
    """Return whether an owner may deny the run although they chose its values."""
    if run.parent is not None or run.state not in STATES_BEFORE_INTENT:
        return False
    return can_decide(tx, policy, replace(run, editors=()), person)


def _can_stop(tx: Transaction, run: Run, policy: Policy, person: str) -> bool:
    """Return whether the person may end a run that is approved or under way."""
    moving = run.parent is None and (
        run.state in {State.QUEUED, State.STARTING, State.RUNNING}
        or (run.state is State.PLANNING and run.kind == "check")
    )
    stopped = stops.get_stop_of_run(tx, run) is not None
    return moving and not stopped and can_stop(policy, run, person)


def _is_held(view: RunView, policy: Policy) -> bool:
    """Return whether the run waits for what break-glass bypasses."""
    run = view.run
    if run.host not in policy.inventory.hosts:
        return False
    if view.break_glass is not None and view.break_glass.activated_at is not None:
        return False
    frozen = policy.describe_freeze(run.target_hosts, runbook=run.runbook, now=view.now)
    needs_approval = bool(run.required_approvals and view.missing_approvals)
    return (
        run.state is State.PENDING
        or (run.state is State.QUEUED and (bool(frozen) or starts_later(run)))
        or (run.state is State.PLANNED and (needs_approval or run.lacks_ticket or bool(frozen)))
    )


def _can_review(view: RunView, policy: Policy, person: str) -> bool:
    if view.break_glass is None or view.break_glass.review_due is None:
        return False
    return can_review(policy, view.run, person, now=view.now)


def _get_undo_refusal(view: RunView, policy: Policy, person: str) -> str:
    """Return why the person cannot request the undo; empty if they can."""
    run = view.run
    if not view.has_executed_steps or run.plan is None:
        return ""
    if run.undo_of is not None:
        return "This run is an undo. Request the original again instead."
    irreversible = [step for step in run.plan.steps if step.undo is None]
    if irreversible:
        return f"“{irreversible[0].title}” cannot be undone: {irreversible[0].no_undo_reason}."
    request = PolicyRequest(
        runbook=run.runbook,
        kind=run.kind,
        host=run.host,
        source="web",
        requested_by=person,
        now=view.now,
    )
    ruling = policy.get_request_ruling(request)
    if ruling.allowed:
        return ""
    return (
        "The policy does not allow you to request it: "
        f"{'; '.join(ruling.policy_notes) or 'no rule does'}."
    )
