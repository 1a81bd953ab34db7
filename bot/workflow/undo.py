"""Request the undo of several runs at once: of a sequence, of a schedule, or of what a person did.

It is a sequence, the newest change first. Of several changes of one value, only the value before
the first of them matters, so one part undoes them all.
"""

from collections.abc import Iterator, Sequence

from bot.audit import change_log, events
from bot.db import runs, view_conditions
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError, NoSuchSchedule
from bot.model.run import RequestTerms, Run
from bot.model.sequence import LEFT_OUT, NOT_UNDONE, UNDO, UNDONE_RUNS, UndoSelection
from bot.model.times import format_utc
from bot.policy import Policy
from bot.queries.folded_runs import FoldedRuns, describe_left_out, fold_host
from bot.workflow.context import WorkflowContext
from bot.workflow.sequences import build_part, record_sequence

_MAX_FIRES = 200


def request_undo_of_selection(
    context: WorkflowContext, selection: UndoSelection, terms: RequestTerms
) -> Run:
    """Request the undo of everything that a person or a schedule did in a time.

    Raises:
        InvalidRequestError: Nothing was done then, or the selection is not complete.
        NoSuchSchedule: The schedule does not exist, or the person may not view it.
    """
    policy = context.policies.get_policy()
    if not selection.schedule and not (selection.since and (selection.person or selection.token)):
        raise InvalidRequestError("name a person or a token, and since when; or a schedule")
    with context.database.reading(policy.get_view_rights(terms.person)) as tx:
        found = (
            _list_fired_runs(tx, selection) if selection.schedule else _list_runs(tx, selection)
        )
        found = [run for run in found if _is_in_area(policy, run, selection.area)]
        title = _describe_selection(policy, selection)
        return _record_undo(context, tx, policy, found, terms, title=title)


def request_undo_of_sequence(context: WorkflowContext, sequence: Run, terms: RequestTerms) -> Run:
    """Request the undo of all changes of a sequence. Raises InvalidRequestError."""
    if sequence.runbook == UNDO:
        raise InvalidRequestError(
            f"run {sequence.id} is an undo: request its changes again instead"
        )
    policy = context.policies.get_policy()
    with context.database.reading(policy.get_view_rights(terms.person)) as tx:
        children = runs.list_children(tx, sequence.id)
        title = f"undo of run {sequence.id}: {sequence.request}"
        return _record_undo(context, tx, policy, children, terms, title=title)


def _list_runs(tx: Transaction, selection: UndoSelection) -> list[Run]:
    until = selection.until or tx.now
    found = runs.list_changes_begun(
        tx, person=selection.person, since=selection.since, until=until
    )
    return [run for run in found if selection.token in {"", run.origin.user}]


def _list_fired_runs(tx: Transaction, selection: UndoSelection) -> list[Run]:
    fired = _list_fires(tx, selection.schedule)[-_MAX_FIRES:]
    first = selection.since or max((fire.due_at for fire in fired), default=0)
    until = selection.until or tx.now
    numbers = [fire.fired_run for fire in fired if first <= fire.due_at <= until]
    return [
        run for n in sorted(numbers) for run in runs.list_children(tx, n) or [runs.get_run(tx, n)]
    ]


def _list_fires(tx: Transaction, schedule: int) -> list[events.Fired]:
    """Return which runs a schedule has fired, as the log says, in the order of their due times."""
    started = change_log.list_entries_naming(tx, events.Scheduled.kind, "schedule", schedule)
    founding = [entry.run for entry in started if entry.run is not None]
    if not view_conditions.list_viewable(tx, founding):
        raise NoSuchSchedule(f"there is no schedule {schedule}")
    fired = change_log.list_entries_naming(
        tx, events.Fired.kind, "schedule", schedule, run=founding[0]
    )
    found = [entry.event for entry in fired if isinstance(entry.event, events.Fired)]
    return sorted(found, key=lambda fire: fire.due_at)


def _is_in_area(policy: Policy, run: Run, area: str) -> bool:
    known = policy.inventory.hosts
    return not area or (run.host in known and known[run.host].area == area)


def _describe_selection(policy: Policy, selection: UndoSelection) -> str:
    since = f" since {format_utc(selection.since)}" if selection.since else ""
    until = f" until {format_utc(selection.until)}" if selection.until else ""
    area = f" in {selection.area}" if selection.area else ""
    if selection.schedule:
        what = f"schedule {selection.schedule}{'' if since else ', last due time'}"
    elif selection.person:
        what = f"changes of {policy.get_person_name(selection.person)}"
    else:
        what = f"changes with token {selection.token}"
    return f"undo of {what}{since}{until}{area}"


def _record_undo(
    context: WorkflowContext,
    tx: Transaction,
    policy: Policy,
    selected: Sequence[Run],
    terms: RequestTerms,
    *,
    title: str,
) -> Run:
    numbers = {run.id for run in selected if run.kind == "change" and run.undo_of is None}
    found: list[Run] = []
    hidden_keys: list[str] = []
    for host in dict.fromkeys(run.host for run in selected):
        folded = fold_host(tx, context.runbooks, host)
        found += _list_runs_to_undo(tx, folded, numbers)
        hidden_keys += [
            f"{key} on {host}"
            for key, earlier in folded.hidden_keys.items()
            if any(run.id in numbers for run in earlier)
        ]
    left_out = describe_left_out(tx, hidden_keys, policy.get_person_name(terms.person))
    found.sort(key=lambda run: (run.started_at or 0, run.id), reverse=True)
    whole = [runs.get_run(tx, run.id) for run in found]
    fixed = [run for run in whole if run.plan is None or not run.plan.is_reversible]
    undone = [run for run in whole if run not in fixed]
    if not undone:
        why = f". Left out: {left_out}" if left_out else ""
        raise InvalidRequestError(f"no run of these can be undone{why}")
    facts = {UNDONE_RUNS: " ".join(map(str, sorted(numbers)))}
    if fixed:
        facts[NOT_UNDONE] = " ".join(str(run.id) for run in fixed)
    if left_out:
        facts[LEFT_OUT] = left_out
    parts = [build_part(run, terms, undo_of=run.id) for run in undone]
    return record_sequence(context, policy, parts, runbook=UNDO, title=title, facts=facts)


def _list_runs_to_undo(tx: Transaction, folded: FoldedRuns, numbers: set[int]) -> Iterator[Run]:
    """Yield the selected runs on a host; of the last changes of a value, only the first."""
    for found in folded.values.values():
        others = [n for n, run in enumerate(found) if run.id not in numbers]
        last_of_others = others[-1] if others else -1
        yield from (
            run
            for n, run in enumerate(found)
            # Earlier ones are explained by the plan: another run has set the value since.
            if run.id in numbers and n <= last_of_others + 1
        )
    for found in folded.acts.values():
        yield from (
            run for run in found if run.id in numbers and runs.has_executed_steps(tx, run.id)
        )
    for run in folded.unsure.values():
        if run.id in numbers and run.undo_of is None and runs.has_executed_steps(tx, run.id):
            yield run
