"""What Keyturn has set on a host, and what it takes to set it on a new one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bot.db import runs, view_conditions
from bot.db.database import Transaction
from bot.model.plan import PlannedStep
from bot.model.run import Decision, Run
from bot.queries.folded_runs import AdoptedValue, FoldedRuns, ValueFact, fold_host
from runbooks import AnyRunbook

_UNKNOWN_IN_GENERAL = (
    "What was set up without Keyturn: packages, files, accounts, and every value that no run has "
    "set"
)


@dataclass(frozen=True)
class SetValue:
    """A value that Keyturn has set and that is still to be so."""

    key: str
    """What was set, such as `shaping eth0`."""
    run: Run
    """The last run that set it."""
    approvals: Sequence[Decision]

    @property
    def steps(self) -> Sequence[PlannedStep]:
        """What was sent, as the plan printed it."""
        return self.run.plan.steps if self.run.plan else ()


@dataclass(frozen=True)
class Act:
    """A change that is not repeated, because it sets no lasting value."""

    request: str
    run: Run
    """The last run of it."""
    count: int
    is_reversible: bool


@dataclass(frozen=True)
class Rebuild:
    """Everything that Keyturn knows of what it has done to a host."""

    host: str
    unknown: Sequence[str]
    """What Keyturn does not know, one clause each."""
    values: Sequence[SetValue]
    """In the order in which they were set."""
    adopted: Sequence[AdoptedValue]
    acts: Sequence[Act]
    """The last of each, oldest first."""
    hidden_keys: Sequence[str] = ()
    """What a run that may not be viewed has set last, so that its value is not among these."""

    @property
    def is_empty(self) -> bool:
        return not (self.values or self.adopted or self.acts)


def read_rebuild(
    tx: Transaction,
    runbooks: Mapping[str, type[AnyRunbook]],
    host: str,
    facts: Mapping[str, ValueFact],
) -> Rebuild:
    """Return what Keyturn has set on a host, as far as it may be viewed.

    facts: what is known of its values beside their runs.
    """
    folded = fold_host(tx, runbooks, host)
    adopted = [
        fact.adopted
        for name, _ in folded.get_last_runs()
        if (fact := facts.get(name)) is not None and fact.adopted is not None
    ]
    left_out = {one.key for one in adopted}
    last = [(name, run) for name, run in folded.get_last_runs() if name not in left_out]
    votes = runs.list_decisions_on(tx, [run.parent or run.id for _, run in last])
    values = [
        SetValue(
            name,
            runs.get_run(tx, run.id),
            [one for one in votes.get(run.parent or run.id, ()) if one.approves],
        )
        for name, run in last
    ]
    unknown = [_UNKNOWN_IN_GENERAL]
    if not view_conditions.can_view_everything(tx):
        unknown.append("Runs that you may not view")
        unknown += [
            f"What {key} is to be: a run that you may not view has set it last"
            for key in folded.hidden_keys
        ]
    unknown += _list_unsure(folded, facts)
    acts = [_build_act(tx, request, found) for request, found in folded.acts.items() if found]
    return Rebuild(
        host,
        unknown,
        values,
        adopted,
        acts,
        [*folded.hidden_keys],
    )


def _list_unsure(folded: FoldedRuns, facts: Mapping[str, ValueFact]) -> Iterator[str]:
    for run in folded.unsure.values():
        yield f"What run {run.id} ({run.title}) left on the host: it {run.state.phrase}"
    for name, _ in folded.get_last_runs():
        fact = facts.get(name)
        if fact is not None and fact.doubt and name not in folded.unsure:
            yield fact.doubt


def _build_act(tx: Transaction, request: str, found: Sequence[Run]) -> Act:
    last = runs.get_run(tx, found[-1].id)
    is_reversible = last.plan is None or last.plan.is_reversible
    return Act(request, last, len(found), is_reversible)
