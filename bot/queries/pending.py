"""List the runs that wait for one person, and decide who can resolve or decide a run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bot.audit import change_log, events
from bot.db import runs, view_conditions
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.model.times import format_utc
from bot.policy import Policy, PolicyRequest, Ruling
from bot.policy.people import Area
from bot.queries.approval_count import get_ruling, is_decision_complete, show_requirements
from bot.queries.delegation_rules import (
    find_delegates,
    find_delegator,
    list_logged_delegations,
)
from bot.queries.questions import Assignment, Remark, get_answerer, get_discussions
from bot.queries.signatures import list_unsigned

# Of a person's own plans.
_MAX_RUNS = 100


@dataclass(frozen=True)
class OpenQuestion:
    """The newest question about a pending run that its person has not answered."""

    run: Run
    question: Remark


@dataclass(frozen=True)
class Inbox:
    """What waits for one person."""

    runs: Sequence[Run]
    """Runs to resolve, then runs to sign or decide: first those assigned to the person. What
    approvals of these require is what the rules require now."""
    to_sign: frozenset[int]
    """Which of the runs the person requested and signs before approvers can decide."""
    assignments: Mapping[int, Assignment]
    """By run, of those that are assigned to the person."""
    questions: Sequence[OpenQuestion]
    """Questions that the person has to answer."""
    proposals: Sequence["CounterProposal"]
    """Other values for the person's requests, to accept or withdraw, the newest first."""

    @property
    def next_to_sign(self) -> int | None:
        """The oldest run whose plan the person signs, as its requester or to approve it."""
        return min(
            (
                run.id
                for run in self.runs
                if run.id in self.to_sign
                or (run.state is State.PENDING and run.requirements.requires_signature)
            ),
            default=None,
        )

    @property
    def count(self) -> int:
        return len(self.runs) + len(self.questions) + len(self.proposals)


def read_inbox(tx: Transaction, policy: Policy, person: str) -> Inbox:
    """Return what waits for a person: the runs to resolve, then others, newest first."""
    unknown, pending = _list_unknown(tx), runs.list_pending(tx)[::-1]
    rulings = {run.id: get_ruling(tx, policy, run) for run in pending}
    pending = [show_requirements(run, rulings[run.id][1]) for run in pending]
    voters = _list_voters(tx, policy, pending, rulings)
    unsigned = _list_unsigned(tx, policy, pending, rulings)
    to_sign = frozenset(
        run.id for run in pending if run.id in unsigned and run.requested_by == person
    )
    found = [run for run in unknown if can_resolve(policy, run, person)] + [
        run
        for run in pending
        if run.id in to_sign
        or (
            run.id not in unsigned
            and person not in voters[run.id]
            and _can_approve(tx, policy, *rulings[run.id], person)
        )
    ]
    own = [run for run in pending if get_answerer(run) == person]
    discussions = get_discussions(tx, {run.id for run in (*found, *own)})
    assignments = {
        number: one.assignment
        for number, one in discussions.items()
        if one.assignment and one.assignee == person
    }
    questions = [
        OpenQuestion(run, discussions[run.id].remarks[-1])
        for run in own
        if run.id in discussions and discussions[run.id].has_open_question
    ]
    found.sort(key=lambda run: (run.state is not State.UNKNOWN, run.id not in assignments))
    proposals = [
        get_counter_proposal(tx, run)
        for run in runs.list_counter_proposed(tx)[::-1]
        if run.requested_by == person
    ]
    return Inbox(found, to_sign, assignments, questions, proposals)


def count_waiting(tx: Transaction, policy: Policy, people: Collection[str]) -> Mapping[str, int]:
    """Count what read_inbox() returns for each of these people of the policy.

    The rules are asked once for all people whom they treat alike. The transaction is the
    service's.
    """
    pending = runs.list_pending(tx)
    in_force = list_logged_delegations(tx, now=tx.now)
    discussions = get_discussions(tx, {run.id for run in pending})
    unknown, proposed = _list_unknown(tx), runs.list_counter_proposed(tx)
    found = {
        person: [
            *(run.id for run in unknown if can_resolve(policy, run, person)),
            *(run.id for run in proposed if run.requested_by == person),
        ]
        for person in people
    }
    rulings = {run.id: get_ruling(tx, policy, run) for run in pending}
    voters = _list_voters(tx, policy, pending, rulings)
    unsigned = _list_unsigned(tx, policy, pending, rulings)
    for run in pending:
        if run.id in discussions and discussions[run.id].has_open_question:
            found.get(get_answerer(run), []).append(run.id)
        if run.id in unsigned:
            found.get(run.requested_by, []).append(run.id)
            continue
        request, ruling = rulings[run.id]
        delegates = find_delegates(policy, in_force, request, ruling)
        able = {*policy.select_approvers(people, request, ruling), *(one for one, _ in delegates)}
        for person in able.intersection(people) - voters[run.id]:
            found[person].append(run.id)
    return {person: _count_viewable(tx, policy, person, found[person]) for person in people}


def _count_viewable(tx: Transaction, policy: Policy, person: str, numbers: Sequence[int]) -> int:
    with view_conditions.viewing_as(tx, policy.get_view_rights(person)):
        viewable = view_conditions.list_viewable(tx, numbers)
    return sum(number in viewable for number in numbers)


def _list_unknown(tx: Transaction) -> list[Run]:
    return runs.list_unknown_outcomes(tx)[::-1]


def _list_voters(
    tx: Transaction,
    policy: Policy,
    pending: Sequence[Run],
    rulings: Mapping[int, tuple[PolicyRequest, Ruling]],
) -> Mapping[int, frozenset[str]]:
    """Return by run who has decided it already, as completely as the rules require now."""
    votes = runs.list_decisions_on(tx, [run.id for run in pending])
    return {
        run.id: frozenset(
            vote.person
            for vote in votes.get(run.id, ())
            if is_decision_complete(tx, policy, run, vote, rulings[run.id][1])
        )
        for run in pending
    }


def _list_unsigned(
    tx: Transaction,
    policy: Policy,
    pending: Sequence[Run],
    rulings: Mapping[int, tuple[PolicyRequest, Ruling]],
) -> frozenset[int]:
    """Return the runs that wait for their requester: no approver can decide them yet."""
    # Without such a rule nothing is read: the inboxes of all open pages are counted with this.
    return list_unsigned(
        tx, policy, [run for run in pending if rulings[run.id][1].requires_signed_request]
    )


def can_decide(tx: Transaction, policy: Policy, run: Run, person: str) -> bool:
    """Return whether this person may approve or deny the run."""
    return _can_approve(tx, policy, *get_ruling(tx, policy, run), person)


def _can_approve(
    tx: Transaction, policy: Policy, request: PolicyRequest, ruling: Ruling, person: str
) -> bool:
    can_in_person = policy.get_approval_ruling(person, request, ruling).allowed
    return can_in_person or bool(find_delegator(tx, policy, request, ruling, person))


def can_resolve(policy: Policy, run: Run, person: str) -> bool:
    """Return whether this person may record how a run with an unknown outcome ended."""
    if run.state is not State.UNKNOWN or run.hosts:
        return False
    area = get_resolution_area(policy, run)
    return area is not None and person in area.owners


def can_stop(policy: Policy | None, run: Run, person: str) -> bool:
    """Return whether this person may stop the run. The command line always may."""
    if not person:
        return True
    if policy is None or policy.find_person(person) is None:
        return False
    known = run.host in policy.inventory.hosts
    owns = known and person in policy.get_area(run.host).owners
    return run.is_requested_for(person) or owns or policy.get_order_ruling(person, "stop").allowed


def get_hold_refusal(tx: Transaction, policy: Policy, run: Run, person: str) -> str:
    """Return why a person cannot hold the run, as a sentence; "" if they can.

    Approvals count no more after a hold, so it is for approved runs. Their requester and everyone
    who could approve them may hold them.
    """
    if run.state is not State.QUEUED:
        return (
            f"Run {run.id} {run.state.phrase}: only an approved run can be held until it starts."
        )
    if run.parent is not None or run.origin.schedule_id:
        return f"Run {run.id} was approved with another: stop it, or end its schedule."
    if not runs.list_decisions(tx, run.id):
        return f"Run {run.id} needed no approval, so it cannot be held: withdraw or stop it."
    if not run.is_requested_for(person) and not can_decide(tx, policy, run, person):
        return f"You can hold run {run.id} only if you requested it or could approve it."
    return ""


def get_freeze_after_approval(policy: Policy, run: Run, *, now: int) -> str:
    """Return the freeze for which a run will wait once approved; "" if there is none."""
    if run.state not in {State.PLANNED, State.PENDING} or run.host not in policy.inventory.hosts:
        return ""
    return policy.describe_freeze(run.target_hosts, runbook=run.runbook, now=now)


def describe_expiry_before_freeze_ends(policy: Policy, run: Run, *, now: int) -> str:
    """Return what becomes of a run whose approval expires while a freeze holds it; "" if none."""
    if (
        run.state not in {State.PENDING, State.QUEUED}
        or run.kind == "check"
        or run.plan is None
        or run.host not in policy.inventory.hosts
    ):
        return ""
    end = policy.get_freeze_end(run.target_hosts, runbook=run.runbook, now=now)
    # A pending run is queued with a later deadline once it is approved.
    is_queued = run.state is State.QUEUED and run.expires_at is not None
    deadline = run.expires_at if is_queued else run.plan.expires_at
    if end is None or deadline is None or end <= deadline:
        return ""
    return (
        f"The approval expires {format_utc(deadline)}, before the freeze ends "
        f"({format_utc(end)}): re-plan the run after the freeze."
    )


def get_resolution_area(policy: Policy, run: Run) -> Area | None:
    """Return the area whose owners can resolve a run, even if its host was removed."""
    if run.host in policy.inventory.hosts:
        return policy.get_area(run.host)
    return policy.organisation.areas.get(run.area)


@dataclass(frozen=True)
class CounterProposal:
    """Other values that an approver proposes for a request."""

    run: Run
    """The run that has these values."""
    person: str
    """Id of the approver; "" if the change log does not say."""
    proposed_at: int
    """Microseconds since 1970."""
    reason: str
    """The approver's; the run has the reason of the requester."""
    changed_values: Mapping[str, tuple[str, str]]
    """The requested and the proposed value, by field; "" for none."""


def list_own_plans(tx: Transaction, person: str) -> list[Run]:
    """Return the plans that this person can request, the newest first."""
    newest = runs.list_unrequested(tx, person)[::-1]
    return [run for run in newest if run.state is State.PLANNED][:_MAX_RUNS]


def get_counter_proposal(tx: Transaction, run: Run) -> CounterProposal:
    """Return who proposed the values of a counter-proposal, when and why, and what differs."""
    requested = runs.get_run(tx, run.proposal_for or run.id).values
    entry = next(iter(change_log.list_entries_of_run(tx, run.id, [events.Proposed.kind])), None)
    event = entry.event if entry else None
    return CounterProposal(
        run,
        person=entry.person if entry else "",
        proposed_at=entry.at if entry else run.requested_at,
        reason=event.reason if isinstance(event, events.Proposed) else "",
        changed_values={
            name: (requested.get(name, ""), run.values.get(name, ""))
            for name in dict.fromkeys([*requested, *run.values])
            if requested.get(name, "") != run.values.get(name, "")
        },
    )
