"""Fan-out: one request for several hosts, seen through as one run with a child run for each.

The children are planned at once and shown as one plan with one digest, which is what people
approve. Then they start in waves: one host first, a tenth of them next, the rest last; after the
first that does not succeed no other is started. Each child passes the gate by itself.
"""

import math
from collections.abc import Sequence

from bot.audit import change_log
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.execution import gate, start_schedule
from bot.model.plan import ResolvedPlan
from bot.model.run import Run, State
from bot.policy import Policy
from bot.workflow.context import WorkflowContext, get_site
from bot.workflow.finish import RunEnd, end_run, end_runs
from bot.workflow.submit_plan import submit_plan
from connectors.errors import prefix_host
from runbooks import Report, Table

_SUCCESSFUL_STATES = frozenset({State.SUCCEEDED, State.NO_CHANGES})
_ACTIVE_STATES = frozenset({State.QUEUED, State.STARTING, State.RUNNING})


def advance_fanout(context: WorkflowContext, number: int) -> None:
    """Bring the whole request as far as its children let it go."""
    with context.database.reading() as tx:
        if _can_only_wait(tx, number):
            return
    with context.database.transaction() as tx:
        whole = runs.lock_run(tx, number)
        if whole.state is State.PLANNING:
            whole = _combine_plans(context, tx, whole, runs.list_children(tx, number))
        if whole.state is State.QUEUED:
            whole = (start_schedule.start_schedule if whole.timing else _start_parent)(
                context, tx, whole
            )
        if whole.state in {State.RUNNING, State.UNKNOWN}:
            _advance_waves(context, tx, whole)


def _can_only_wait(tx: Transaction, number: int) -> bool:
    """Say whether it can only wait: each of its hosts says so when it is done.

    Whichever of them comes last finds none at work before it, so that not all are looked at anew
    for each.
    """
    state = runs.get_run(tx, number).state
    if state is State.PLANNING:
        return runs.has_child_in(tx, number, [State.PLANNING])
    if state in {State.RUNNING, State.UNKNOWN}:
        return runs.has_child_in(tx, number, _ACTIVE_STATES)
    # Of one that has come to its end, its last hosts may say so late.
    return state is not State.QUEUED


def _combine_plans(
    context: WorkflowContext, tx: Transaction, parent: Run, children: Sequence[Run]
) -> Run:
    """Make one plan, or one report, of what every host said; as long as one is silent, wait."""
    if any(child.state is State.PLANNING for child in children):
        return parent
    bad = [child for child in children if child.state not in _SUCCESSFUL_STATES | {State.PENDING}]
    if bad and parent.kind == "change":
        why = "; ".join(prefix_host(child.host, _get_end_reason(child)) for child in bad)
        return end_run(context, tx, parent, bad[0].state, f"{why}. Nothing was sent to any host.")
    if parent.kind == "check" and parent.timing is None:
        return _combine_reports(context, tx, parent, children, bad)
    waiting = [child for child in children if child.state is State.PENDING]
    if not waiting:
        summary = f"No changes on any of {len(children)} hosts"
        return end_run(context, tx, parent, State.NO_CHANGES, summary)
    return _submit_combined_plan(context, tx, parent, waiting)


def _submit_combined_plan(
    context: WorkflowContext, tx: Transaction, parent: Run, pending: Sequence[Run]
) -> Run:
    """Show the plan of all hosts as one, for one approval of one digest."""
    proposals = [child.plan for child in pending if child.plan]
    first = proposals[0]
    proposal = ResolvedPlan(
        runbook=first.runbook,
        runbook_version=first.runbook_version,
        values=parent.values,
        requested_by=parent.requested_by,
        expires_at=min(proposal.expires_at for proposal in proposals),
        policy_version=first.policy_version,
        current_state="; ".join(
            f"{child.host}: {child.plan.current_state}" for child in pending if child.plan
        ),
        steps=tuple(step for proposal in proposals for step in proposal.steps),
        notes=_combine_notes(pending),
        undo_of=parent.undo_of,
        timing=parent.timing,
        host_keys={
            host: key for proposal in proposals for host, key in proposal.host_keys.items()
        },
        schedule_lifetime=first.schedule_lifetime,
    )
    return submit_plan(context, tx, parent, proposal)


def _start_parent(context: WorkflowContext, tx: Transaction, parent: Run) -> Run:
    """Start the request as a whole; each of its hosts is still to pass the gate by itself."""
    policy: Policy = context.policies.get_policy()
    try:
        gate.authorise_run(context, tx, parent, policy)
    except gate.GateRefused as shut:
        return gate.end_refused_run(context, tx, parent, shut)
    starting = runs.move_run(tx, parent, State.STARTING)
    change_log.append_entry(tx, "started", run=parent.id, host=parent.host, digest=parent.digest)
    return runs.move_run(tx, starting, State.RUNNING, started_at=tx.now)


def _advance_waves(context: WorkflowContext, tx: Transaction, parent: Run) -> None:
    children = runs.list_children_briefly(tx, parent.id)
    if any(child.state in _ACTIVE_STATES for child in children):
        return
    bad = [c for c in children if c.state not in _SUCCESSFUL_STATES | {State.PENDING}]
    waiting = [child for child in children if child.state is State.PENDING]
    if waiting and not bad:
        _start_wave(context, tx, parent, waiting[: _count_next_wave(children)])
        return
    for child in waiting:
        why = f"Not started, since {bad[0].host} ended {bad[0].state}"
        end_run(context, tx, child, State.WITHDRAWN, why)
    _end_parent(
        context,
        tx,
        parent,
        runs.list_children_briefly(tx, parent.id) if waiting else children,
        bad,
    )


def _count_next_wave(children: Sequence[Run]) -> int:
    """Return how many hosts come next: one, then a tenth of all, then the rest.

    Only a host that was changed shows anything: one that was as asked already is no canary.
    """
    to_change = sum(bool(child.digest) for child in children)
    proven = sum(child.state is State.SUCCEEDED for child in children)
    if proven == 0:
        return 1
    return math.ceil(to_change / 10) if proven == 1 else to_change


def _start_wave(
    context: WorkflowContext, tx: Transaction, parent: Run, wave: Sequence[Run]
) -> None:
    # Raises NoPolicy: then none of them is started.
    context.policies.get_policy()
    runs.move_runs(tx, [(child, runs.changed_copy(child, state=State.QUEUED)) for child in wave])
    for child in wave:
        # Whether its host is still there, the gate says.
        context.dispatcher.enqueue_run(tx, child.id, get_site(context, child.host))
    outbox.announce_run(tx, parent.id)


def _end_parent(
    context: WorkflowContext,
    tx: Transaction,
    parent: Run,
    children: Sequence[Run],
    unsuccessful: Sequence[Run],
) -> None:
    good = sum(child.state in _SUCCESSFUL_STATES for child in children)
    counted = f"{good} of {len(children)} hosts"
    if not unsuccessful:
        end_run(context, tx, parent, State.SUCCEEDED, f"Proven on {counted}")
        return
    why = "; ".join(
        prefix_host(", ".join(hosts), why) for why, hosts in _group_by_reason(unsuccessful).items()
    )
    states = {child.state for child in unsuccessful}
    state = State.UNKNOWN if State.UNKNOWN in states else State.FAILED
    if State.STOPPED in states and state is State.FAILED and parent.state is State.RUNNING:
        state = State.STOPPED
    if parent.state is not state:
        end_run(context, tx, parent, state, f"Done on {counted}. {why}")


def _combine_reports(
    context: WorkflowContext,
    tx: Transaction,
    parent: Run,
    children: Sequence[Run],
    unsuccessful: Sequence[Run],
) -> Run:
    told = [(child.host, child.report) for child in children if child.report]
    unwell = [host for host, report in told if not report.healthy]
    summary = f"{len(told) - len(unwell)} of {len(children)} hosts are well"
    findings = [prefix_host(child.host, _get_end_reason(child)) for child in unsuccessful]
    findings += [f"{host}: {finding}" for host, report in told for finding in report.findings]
    tables = [(host, report.table) for host, report in told if report.table]
    table = None
    if tables:
        rows = [(host, *row) for host, table in tables for row in table.rows]
        table = Table(("Host", *tables[0][1].columns), rows)
    report = Report(
        summary, healthy=not unwell and not unsuccessful, findings=findings, table=table
    )
    state = State.FAILED if unsuccessful and not told else State.SUCCEEDED
    return end_runs(context, tx, [RunEnd(parent, state, summary, report=report)])[0]


def _combine_notes(children: Sequence[Run]) -> tuple[str, ...]:
    """Return every note once, with the hosts that it is about unless it is about all."""
    about: dict[str, list[str]] = {}
    for child in children:
        for note in child.plan.notes if child.plan else ():
            about.setdefault(note, []).append(child.host)
    return tuple(
        note if len(hosts) == len(children) else f"{', '.join(hosts)}: {note}"
        for note, hosts in about.items()
    )


def _group_by_reason(unsuccessful: Sequence[Run]) -> dict[str, list[str]]:
    """Return why hosts did not come to a good end, each reason once with its hosts."""
    found: dict[str, list[str]] = {}
    for child in unsuccessful:
        found.setdefault(_get_end_reason(child), []).append(child.host)
    return found


def _get_end_reason(child: Run) -> str:
    return child.summary.rstrip(".") or str(child.state)
