"""The redundancy of services: what a change would take down now, and what is down already."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.db import runs, view_conditions
from bot.db.database import Transaction
from bot.features.redundancy import rows
from bot.features.redundancy.guard import GuardDecision, TreeState, decide
from bot.features.redundancy.rows import EventReading, LegClaim
from bot.model.check_result import CheckResult, create_error_result, create_warning_result
from bot.model.plan import RemainingWork, ResolvedPlan
from bot.model.references import refer_to_run
from bot.model.run import Run, State
from bot.model.times import MINUTE, format_deadline
from bot.policy import Policy
from bot.policy.fault_tree import Event
from bot.policy.policy import NO_LIMIT
from bot.policy.tree_analysis import TreeAnalysis
from bot.policy.trees import format_cut_set
from bot.queries.policy_facts import PolicyFacts
from bot.workflow.context import WorkflowContext
from runbooks import Leg

STANDS, FAILED, UNKNOWN, CLAIMED = "stands", "failed", "unknown", "claimed"
# Of a reading: the check needs attention, and no condition says whether the leg is down.
FINDING = "finding"


_SUBJECT = "Fault trees"
# How long a contact counts. Every host is contacted just before the plan and the gate.
_CONTACT_LIFETIME = MINUTE


@dataclass(frozen=True)
class TreeStatus:
    """A tree's events as they are now."""

    state: TreeState
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    """For each event that does not stand, what is known of it."""
    outdated: frozenset[str] = frozenset()
    """Of the unknown events those that stood at their last reading, which is too old."""

    @property
    def last_known_state(self) -> TreeState:
        """The state if whatever stood at its last reading still does."""
        return replace(self.state, unknown=self.state.unknown - self.outdated)


@dataclass(frozen=True)
class _EventStatus:
    state: str
    words: str = ""
    is_outdated: bool = False


def read_status(
    tx: Transaction, policy: Policy, analysis: TreeAnalysis, *, except_runs: Collection[int] = ()
) -> TreeStatus:
    """Return how the events of a tree are. except_runs: their claims do not count."""
    name = analysis.tree.name
    read = dict(_read_events(tx, analysis))
    by_state = {
        state: frozenset(event for event, one in read.items() if one.state == state)
        for state in (FAILED, UNKNOWN)
    }
    claimed = {
        claim.event: _describe_claim(tx, policy, claim)
        for claim in rows.list_claims(tx, name)
        if claim.run not in except_runs
    }
    return TreeStatus(
        TreeState(by_state[FAILED], by_state[UNKNOWN], frozenset(claimed)),
        claimed | {event: one.words for event, one in read.items() if one.words},
        frozenset(event for event, one in read.items() if one.is_outdated),
    )


def _read_events(tx: Transaction, analysis: TreeAnalysis) -> Iterator[tuple[str, _EventStatus]]:
    readings = rows.list_readings(tx, analysis.tree.name)
    max_age = round(analysis.tree.max_age_minutes * MINUTE)
    for event in analysis.events:
        # Nothing can be known of an undeveloped event: its tree says that it counts as up.
        if event.check or event.leg is not None:
            oldest = tx.now - (max_age if event.check else _CONTACT_LIFETIME)
            yield event.name, _judge_reading(event, readings.get(event.name), oldest=oldest)


def _judge_reading(event: Event, reading: EventReading | None, *, oldest: int) -> _EventStatus:
    """Return what is known now: what was not read, or not lately, is unknown."""
    read, reached = ("checked", "checked") if event.check else ("contacted", "reached")
    if reading is None:
        # Runs may well have contacted the host of a leg: that is no reading of the leg.
        return _EventStatus(UNKNOWN, "is not read yet")
    at = format_deadline(reading.read_at)
    if reading.read_at < oldest:
        words = f"is unknown: last {read} {at}"
        return _EventStatus(UNKNOWN, words, is_outdated=reading.state == STANDS)
    if reading.state == UNKNOWN:
        detail = reading.detail.rstrip(".")
        return _EventStatus(UNKNOWN, f"could not be {reached} at {at}: {detail}")
    if reading.state == FINDING:
        since, detail = format_deadline(reading.since_at), reading.detail.rstrip(".")
        return _EventStatus(UNKNOWN, f"needs attention since {since}: {detail}")
    if reading.state == FAILED:
        return _EventStatus(FAILED, f"is down since {format_deadline(reading.since_at)}")
    return _EventStatus(STANDS)


def _describe_claim(tx: Transaction, policy: Policy, claim: LegClaim) -> str:
    since = format_deadline(claim.claimed_at)
    try:
        requester = runs.get_run(tx, claim.run).requested_by
    except runs.NoSuchRun:
        return f"is held by another run since {since}"
    words = f"run {claim.run} of {policy.get_person_name(requester)}"
    # What the service reads is stored, and read by people who may not view that run.
    holder = refer_to_run(claim.run, words) if tx.view_rights is None else words
    return f"is held by {holder} since {since}"


def list_decisions(
    tx: Transaction,
    policy: Policy,
    legs: Collection[Leg],
    *,
    except_runs: Collection[int] = (),
    by_last_known: bool = False,
) -> list[tuple[GuardDecision, TreeStatus]]:
    """Decide, for each tree, whether a change may take these legs down now.

    by_last_known: readings count whatever their age.
    """
    decisions: list[tuple[GuardDecision, TreeStatus]] = []
    for analysis in policy.trees.values():
        takes = analysis.list_events_of(legs)
        if takes:
            status = read_status(tx, policy, analysis, except_runs=except_runs)
            state = status.last_known_state if by_last_known else status.state
            decisions.append((decide(analysis, state, takes), status))
    return decisions


def check_plan(
    _context: WorkflowContext, tx: Transaction, policy: Policy, run: Run, work: RemainingWork
) -> str:
    """Return why the legs of a plan may not be taken down now; at the gate, claims decide that."""
    if run.state is not State.PLANNING or run.timing is not None:
        return ""
    override = run.guard_override
    return find_refusal(tx, policy, work.takes_down, run=run.id, override=override)


def find_refusal(
    tx: Transaction, policy: Policy, legs: Collection[Leg], *, run: int, override: str = ""
) -> str:
    """Return why these legs may not be taken down now; "" if they may.

    override: a cut set as `format_cut_set` writes it, that was approved to be taken.
    """
    if legs and (problem := describe_tree_problems(policy)):
        return f"{problem} Until then, no change that takes something down starts"
    for decision, status in list_decisions(tx, policy, legs, except_runs=[run]):
        if decision.is_refused and _name_cut_set(decision) != override:
            return describe_refusal(policy.trees[decision.tree], decision, status)
    return ""


def read_margin(tx: Transaction, policy: Policy, run: Run) -> int:
    """Return how many legs would be left, at the least, while the run works on one host.

    What hosts of the same request have claimed does not count: waves keep the margin then. Legs
    are read for the plan and for the gate, which decides: in between, the last readings count, so
    that no approval is missing only because the others took an hour.
    """
    own = [run.id]
    if run.hosts and run.plan and run.plan.takes_down:
        own += [child.id for child in runs.list_children_briefly(tx, run.id)]
    margins = [
        decision.margin_after
        for legs in _list_legs_by_host(run.plan)
        for decision, _ in list_decisions(
            tx, policy, legs, except_runs=own, by_last_known=run.state is not State.STARTING
        )
        if decision.margin_after is not None
    ]
    return min(margins, default=NO_LIMIT)


def _bind_margins(_tx: Transaction, policy: Policy, _run: Run | None) -> Policy:
    return policy if policy.read_margin is read_margin else policy.with_margins(read_margin)


FACTS = PolicyFacts(
    matter_to=lambda policy: bool(policy.trees or policy.tree_problems),
    apply=_bind_margins,
    is_lasting=True,
)


def list_margin_notes(
    _context: WorkflowContext, tx: Transaction, policy: Policy, run: Run, work: RemainingWork
) -> Iterator[str]:
    """Yield a note for the plan, for each service that a change touches."""
    for decision, status in list_decisions(tx, policy, work.takes_down, except_runs=[run.id]):
        if not decision.taken or decision.margin_after is None:
            continue
        if decision.is_refused:
            yield f"Overrides the redundancy guard for the cut set {_name_cut_set(decision)}."
        before, after = decision.margin_before, decision.margin_after
        taken = ", ".join(decision.taken)
        last = ""
        if after <= 0:
            is_single = set(decision.taken) & set(policy.trees[decision.tree].single_points)
            last = " It is a single point of failure." if is_single else " It is the last leg."
        down = status.state.down | set(decision.taken)
        cut_set = ", ".join(policy.trees[decision.tree].find_nearest_cut_set(down))
        yield (
            f"Redundancy of {decision.tree}: margin {before} → {after} without {taken} "
            f"(cut set {cut_set}).{last}"
        )


def describe_refusal(analysis: TreeAnalysis, decision: GuardDecision, status: TreeStatus) -> str:
    """Return sentences that name the leg, the cut set, since when, and who."""
    taken = " and ".join(name for name in decision.cut_set if name in decision.taken)
    others = [name for name in decision.cut_set if name not in decision.taken]
    effect = f"{analysis.tree.get_title(analysis.tree.top)} (cut set {_name_cut_set(decision)})"
    if not others:
        return (
            f"This change would take {taken} down together: {effect}. Change one after the other"
        )
    known = " and ".join(f"{name} {status.words.get(name, 'is down')}" for name in others)
    return (
        f"{known}. This change would take {taken} down too: {effect}. Repair {others[0]} first, "
        "or request it with an override of this cut set"
    )


def describe_tree_problems(policy: Policy) -> str:
    """Return which fault trees are not valid, with file, line and what to write; "" if all are."""
    if not policy.tree_problems:
        return ""
    problems = "; ".join(map(str, policy.tree_problems))
    return f"A fault tree is not valid, so it protects nothing: {problems}."


def check_trees(tx: Transaction, policy: Policy) -> Iterator[CheckResult]:
    """Yield what is wrong with fault trees, and the events whose last reading says nothing."""
    for problem in policy.tree_problems:
        yield create_error_result(
            _SUBJECT, f"{problem}. Until then, no change that takes something down starts"
        )
    for name, analysis in policy.trees.items():
        readings = rows.list_readings(tx, name)
        for event in analysis.events:
            reading = readings.get(event.name)
            if reading is not None and reading.state == UNKNOWN:
                since = format_deadline(reading.since_at)
                yield create_warning_result(
                    _SUBJECT, f"{event.name} of {name} is unknown since {since}: {reading.detail}"
                )


def may_start_together(tx: Transaction, policy: Policy, wave: Sequence[Run]) -> bool:
    """Return whether these hosts may be changed together, as far as redundancy goes.

    True where the gate will refuse them whatever is waited for: then it says why.
    """
    legs = [leg for run in wave if run.plan for leg in run.plan.legs]
    is_first = len(wave) == 1
    for decision, status in list_decisions(tx, policy, legs):
        analysis = policy.trees[decision.tree]
        if decision.is_refused:
            without_claims = replace(status.state, claimed=frozenset())
            if not (is_first and decide(analysis, without_claims, decision.taken).is_refused):
                return False
        elif decision.margin_after is None or decision.margin_after >= analysis.tree.keep:
            continue
        elif not is_first or status.state.claimed:
            return False
    return True


@dataclass(frozen=True)
class TreeOverview:
    """A service's tree as people see it: what is down, claimed and left."""

    analysis: TreeAnalysis
    margin: int | None
    """How many more failures it survives; 0: it is down, None: nothing can take it down."""
    status: TreeStatus
    claims: Sequence[LegClaim]

    @property
    def labels(self) -> Mapping[str, str]:
        """One word for each event that does not stand: failed, unknown or claimed."""
        state = self.status.state
        kinds = ((CLAIMED, state.claimed), (UNKNOWN, state.unknown), (FAILED, state.failed))
        return {event: label for label, events in kinds for event in events}

    @property
    def margin_sentence(self) -> str:
        if self.margin is None:
            return "Nothing in the tree takes it down"
        if self.margin == 0:
            if self.analysis.is_down(self.status.state.failed):
                return "Down"
            return "Not known: Keyturn reads its legs before each change"
        if self.margin == 1:
            return "Last leg: one more failure takes it down"
        return f"Survives {self.margin - 1} more failure{'s' * (self.margin > 2)}"


def read_overview(tx: Transaction, policy: Policy, analysis: TreeAnalysis) -> TreeOverview:
    """Return what is known of a service now."""
    status = read_status(tx, policy, analysis)
    claims = rows.list_claims(tx, analysis.tree.name)
    viewable = view_conditions.list_viewable(tx, [claim.run for claim in claims])
    return TreeOverview(
        analysis,
        analysis.get_margin(status.state.down),
        status,
        [claim for claim in claims if claim.run in viewable],
    )


def _name_cut_set(decision: GuardDecision) -> str:
    return format_cut_set(decision.tree, decision.cut_set)


def _list_legs_by_host(plan: ResolvedPlan | None) -> Sequence[Sequence[Leg]]:
    by_host: dict[str, list[Leg]] = {}
    for leg in plan.legs if plan else ():
        by_host.setdefault(leg.host, []).append(leg)
    return [*by_host.values()]
