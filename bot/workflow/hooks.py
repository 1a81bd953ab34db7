"""Where features take part in the way of a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from bot.db.database import Transaction
from bot.model.plan import RemainingWork
from bot.model.run import RefusedBy, Run
from bot.policy import Policy
from bot.queries.break_glass_rules import is_break_glass_active
from bot.queries.folded_runs import ValueFact
from bot.queries.policy_facts import PolicyFacts

if TYPE_CHECKING:
    from bot.workflow.context import WorkflowContext


OnRunEnd = Callable[["WorkflowContext", Transaction, Run], None]
"""Is called in the transaction that ends a run."""
ListPlanNotes = Callable[
    ["WorkflowContext", Transaction, Policy, Run, RemainingWork], Iterable[str]
]
"""Returns what an approver should know, while the plan of a run is made."""
ReadValueFacts = Callable[[Transaction, str], Mapping[str, ValueFact]]
"""Returns what is known of the lasting values of a host, by name."""
BuildHostDuties = Callable[["WorkflowContext", Event], Sequence[Callable[[], object]]]
"""Returns periodic duties that contact hosts. The event is set when the process ends."""


class RefusedByFeature(Exception):
    """A feature does not permit a run. The message says why, and maybe what to do."""

    def __init__(self, refused_by: RefusedBy, reason: str) -> None:
        super().__init__(reason)
        self.refused_by = refused_by


def _prepare_nothing(
    _context: "WorkflowContext", _policy: Policy, _run: Run, work: RemainingWork
) -> RemainingWork:
    return work


def _permit(*_facts: object) -> str:
    return ""


def _permit_together(_tx: Transaction, _policy: Policy, _runs: Sequence[Run]) -> bool:
    return True


@dataclass(frozen=True)
class Guard:
    """What a feature refuses: when a plan is made, and again before the first step."""

    refused_by: RefusedBy
    """In whose name it refuses, and so what it answers for."""
    prepare: Callable[["WorkflowContext", Policy, Run, RemainingWork], RemainingWork] = (
        _prepare_nothing
    )
    """Reads outside of Keyturn what it decides by, and returns the work with what it learnt.

    Called before the transaction of the plan and before that of the gate, and of a run for
    several hosts before its next hosts start, with what they take down and no steps. Raises
    RefusedByFeature.
    """
    check: Callable[["WorkflowContext", Transaction, Policy, Run, RemainingWork], str] = _permit
    """Returns why a plan may not be made, or why its run may not start; "" if it may."""
    claim: Callable[[Transaction, Policy, Run], str] = _permit
    """Takes what the run needs for itself, or returns why it cannot have it.

    Last at the gate, since other runs that need the same wait from here.
    """
    may_start_together: Callable[[Transaction, Policy, Sequence[Run]], bool] = _permit_together
    """Returns whether these hosts of one request may be changed at the same time."""


@dataclass(frozen=True)
class ScheduleHooks:
    """What becomes of requests for schedules; without them they are refused."""

    start_schedule: Callable[["WorkflowContext", Transaction, Run], Run]
    """Starts the schedule of an approved request, which ends its run."""
    get_founding_run: Callable[["WorkflowContext", Transaction, Run], Run]
    """Returns the request whose approvals count for a run of a schedule. Raises GateRefused."""


@dataclass(frozen=True)
class WorkflowHooks:
    """What features do at each place, in the order of the features."""

    policy_facts: Sequence[PolicyFacts] = ()
    """What they add to the policy, in the sources of requests and at the gate."""
    guards: Sequence[Guard] = ()
    on_run_end: Sequence[OnRunEnd] = ()
    list_plan_notes: Sequence[ListPlanNotes] = ()
    read_value_facts: Sequence[ReadValueFacts] = ()
    build_host_duties: Sequence[BuildHostDuties] = ()
    schedules: ScheduleHooks | None = None


NO_WORKFLOW_HOOKS = WorkflowHooks()


def prepare_work(
    context: "WorkflowContext", policy: Policy, run: Run, work: RemainingWork
) -> RemainingWork:
    """Return the work with what guards learn of it now. Raises RefusedByFeature."""
    for guard in context.hooks.guards:
        work = guard.prepare(context, policy, run, work)
    return work


def check_work(
    context: "WorkflowContext", tx: Transaction, policy: Policy, run: Run, work: RemainingWork
) -> None:
    """Raise RefusedByFeature if a guard refuses the work, or if there is none for it."""
    _check_is_guarded(context, tx, policy, run, work)
    for guard in context.hooks.guards:
        if refusal := guard.check(context, tx, policy, run, work):
            raise RefusedByFeature(guard.refused_by, refusal)


def _check_is_guarded(
    context: "WorkflowContext", tx: Transaction, policy: Policy, run: Run, work: RemainingWork
) -> None:
    """Raise RefusedByFeature for what the policy or the request asks and no feature answers."""
    known = {guard.refused_by for guard in context.hooks.guards}
    if RefusedBy.GUARD not in known and policy.has_protected(work.takes_down):
        legs = ", ".join(map(str, work.takes_down))
        raise RefusedByFeature(
            RefusedBy.GUARD,
            f"This change takes {legs} down, and the policy has fault trees, which nothing in "
            "this installation reads: add the feature redundancy, or remove the trees",
        )
    is_asked = run.ticket and work.steps and work.ticket is None
    if is_asked and not is_break_glass_active(tx, policy, run):
        raise RefusedByFeature(
            RefusedBy.TICKET,
            f"The request names ticket {run.ticket}, and nothing in this installation asks about "
            "tickets: add the feature tickets",
        )


def claim_for_run(context: "WorkflowContext", tx: Transaction, policy: Policy, run: Run) -> None:
    """Raise RefusedByFeature if a guard cannot take what the run needs."""
    for guard in context.hooks.guards:
        if refusal := guard.claim(tx, policy, run):
            raise RefusedByFeature(guard.refused_by, refusal)


def may_start_together(
    context: "WorkflowContext", tx: Transaction, policy: Policy, runs: Sequence[Run]
) -> bool:
    """Return whether these hosts of one request may be changed at the same time."""
    return all(guard.may_start_together(tx, policy, runs) for guard in context.hooks.guards)


def read_value_facts(
    context: "WorkflowContext", tx: Transaction, host: str
) -> Mapping[str, ValueFact]:
    """Return what features know of the lasting values of a host, by name."""
    facts: dict[str, ValueFact] = {}
    for read in context.hooks.read_value_facts:
        facts |= read(tx, host)
    return facts
