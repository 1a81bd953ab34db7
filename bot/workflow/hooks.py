"""Where features take part in the way of a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from bot.db.database import Transaction
from bot.model.run import Run
from bot.policy import Policy
from bot.queries.folded_runs import ValueFact
from bot.queries.policy_facts import PolicyFacts

if TYPE_CHECKING:
    from bot.workflow.context import WorkflowContext


OnRunEnd = Callable[["WorkflowContext", Transaction, Run], None]
"""Is called in the transaction that ends a run."""
ListPlanNotes = Callable[["WorkflowContext", Transaction, Policy, Run], Iterable[str]]
"""Returns what an approver should know, while the plan of a run is made."""
ReadValueFacts = Callable[[Transaction, str], Mapping[str, ValueFact]]
"""Returns what is known of the lasting values of a host, by name."""
BuildHostDuties = Callable[["WorkflowContext", Event], Sequence[Callable[[], object]]]
"""Returns periodic duties that contact hosts. The event is set when the process ends."""


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
    on_run_end: Sequence[OnRunEnd] = ()
    list_plan_notes: Sequence[ListPlanNotes] = ()
    read_value_facts: Sequence[ReadValueFacts] = ()
    build_host_duties: Sequence[BuildHostDuties] = ()
    schedules: ScheduleHooks | None = None


NO_WORKFLOW_HOOKS = WorkflowHooks()


def read_value_facts(
    context: "WorkflowContext", tx: Transaction, host: str
) -> Mapping[str, ValueFact]:
    """Return what features know of the lasting values of a host, by name."""
    facts: dict[str, ValueFact] = {}
    for read in context.hooks.read_value_facts:
        facts |= read(tx, host)
    return facts
