"""Fan-out: a request for several hosts is one parent run with a child run for each host.

The children are planned together, and people approve one plan with one digest. Then the children
start in waves: one host first, a tenth of them next, then the rest. After the first that does not
succeed, no other starts; one with an unknown outcome holds them until that is known. Each child
passes the gate by itself. The children of a sequence are
different changes, and start one after the other.
"""

import math
from collections.abc import Iterator, Sequence

from bot.audit import change_log, events
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.execution import gate
from bot.execution.planner import issue_plan
from bot.model.canonical import hash_canonical
from bot.model.plan import RemainingWork, ResolvedPlan
from bot.model.references import refer_to_run
from bot.model.run import RefusedBy, Run, State
from bot.model.run_states import get_run_display
from bot.model.sequence import LEFT_OUT, NOT_UNDONE, find_label
from bot.model.text import format_count
from bot.model.waiting import Waiting, WaitingFor
from bot.policy import Policy
from bot.workflow.context import WorkflowContext, get_site
from bot.workflow.finish import RunEnd, end_run, end_runs
from bot.workflow.hooks import may_start_together, prepare_work
from bot.workflow.submit_plan import submit_plan
from connectors.errors import prefix_host
from runbooks import Leg, Report, Table

_SUCCESSFUL_STATES = frozenset({State.SUCCEEDED, State.NO_CHANGES})
_ACTIVE_STATES = frozenset({State.QUEUED, State.STARTING, State.RUNNING})


def advance_fanout(context: WorkflowContext, number: int) -> None:
    """Advance a parent run as far as its children permit."""
    with context.database.reading() as tx:
        if _can_only_wait(tx, number):
            return
        parent = runs.get_run(tx, number)
        legs = [*_list_legs_to_take(tx, parent)]
    if legs:
        work = RemainingWork("", (), takes_down=legs)
        prepare_work(context, context.policies.get_policy(), parent, work)
    with context.database.transaction() as tx:
        parent = runs.lock_run(tx, number)
        if parent.state is State.PLANNING:
            parent = _combine_plans(context, tx, parent, runs.list_children(tx, number))
        if parent.state is State.QUEUED:
            parent = (gate.start_schedule if parent.timing else _start_parent)(context, tx, parent)
        if parent.state in {State.RUNNING, State.UNKNOWN}:
            _advance_waves(context, tx, parent)


def _can_only_wait(tx: Transaction, number: int) -> bool:
    """Return whether the run has to wait for its children, each of which wakes it at its end.

    This avoids reading all children for each that ends.
    """
    state = runs.get_run(tx, number).state
    if state is State.PLANNING:
        return runs.has_child_in(tx, number, [State.PLANNING])
    if state in {State.RUNNING, State.UNKNOWN}:
        return runs.has_child_in(tx, number, _ACTIVE_STATES)
    # The last children of a parent that has ended may wake it late.
    return state is not State.QUEUED


def _list_legs_to_take(tx: Transaction, parent: Run) -> Iterator[Leg]:
    """Yield the legs that the next waves of a run would take down."""
    if parent.state is State.PLANNING or not (parent.plan and parent.plan.takes_down):
        return
    for child in runs.list_children_briefly(tx, parent.id):
        if child.state is State.PENDING:
            plan = runs.get_run(tx, child.id).plan
            yield from plan.legs if plan else ()


def _combine_plans(
    context: WorkflowContext, tx: Transaction, parent: Run, children: Sequence[Run]
) -> Run:
    """Combine the plans, or reports, of all children; wait while one is still planning."""
    if any(child.state is State.PLANNING for child in children):
        return parent
    bad = [child for child in children if child.state not in _SUCCESSFUL_STATES | {State.PENDING}]
    if bad and parent.kind == "change":
        why = "; ".join(
            prefix_host(_get_name(parent, child), _get_end_reason(child)) for child in bad
        )
        return end_run(
            context,
            tx,
            parent,
            bad[0].state,
            f"{why}. Nothing was sent to any host.",
            refused_by=bad[0].refused_by,
        )
    if parent.kind == "check" and parent.timing is None:
        return _combine_reports(context, tx, parent, children, bad)
    waiting = [child for child in children if child.state is State.PENDING]
    unneeded = [*_list_unneeded(children)] if parent.is_sequence else []
    if not waiting:
        summary = "; ".join(unneeded) or f"None of {len(children)} hosts needs a change"
        return end_run(context, tx, parent, State.NO_CHANGES, summary)
    notes = [*unneeded, *_list_left_out(tx, parent)] if parent.is_sequence else []
    return _submit_combined_plan(context, tx, parent, waiting, notes=notes)


def _submit_combined_plan(
    context: WorkflowContext,
    tx: Transaction,
    parent: Run,
    pending: Sequence[Run],
    *,
    notes: Sequence[str],
) -> Run:
    """Submit the plans of all child runs as one plan with one digest. notes: more to show."""
    plans = [child.plan for child in pending if child.plan]
    first = plans[0]
    if any(plan.ticket != first.ticket for plan in plans):
        why = f"Ticket {parent.ticket} was changed while the hosts were read. Request it again."
        return end_run(context, tx, parent, State.REFUSED, why, refused_by=RefusedBy.TICKET)
    combined = ResolvedPlan(
        run=parent.id,
        reason=parent.reason,
        installation=context.installation,
        runbook=parent.runbook,
        runbook_version=(
            hash_canonical([plan.runbook_version for plan in plans])
            if parent.is_sequence
            else first.runbook_version
        ),
        values=parent.values,
        requested_by=parent.requested_by,
        expires_at=min(plan.expires_at for plan in plans),
        policy_version=first.policy_version,
        current_state="; ".join(
            f"{_get_name(parent, child)}: {child.plan.current_state.rstrip('.')}"
            for child in pending
            if child.plan
        ),
        steps=tuple(step for plan in plans for step in plan.steps),
        notes=(*_combine_notes(parent, pending), *notes),
        undo_of=parent.undo_of,
        timing=parent.timing,
        host_keys={host: key for plan in plans for host, key in plan.host_keys.items()},
        schedule_lifetime=first.schedule_lifetime,
        takes_down=tuple(leg for plan in plans for leg in plan.takes_down),
        ticket=first.ticket,
        part_steps=_count_steps_of_parts(parent, pending) if parent.is_sequence else {},
    )
    policy = context.policies.get_policy()
    return submit_plan(context, tx, parent, issue_plan(tx, policy, parent, combined))


def _start_parent(context: WorkflowContext, tx: Transaction, parent: Run) -> Run:
    """Start the parent run unless a freeze or its approved start holds it.

    Each child still passes the gate itself.
    """
    policy: Policy = context.policies.get_policy()
    try:
        counted = gate.authorise_run(context, tx, parent, policy)
    except gate.GateRefused as refusal:
        return gate.end_refused_run(context, tx, parent, refusal)
    held = gate.find_blocking_time(tx, parent, counted)
    if held is not None:
        gate.record_waiting(tx, parent, held)
        return parent
    gate.record_review_requirement(tx, parent, counted)
    starting = runs.move_run(tx, parent, State.STARTING)
    change_log.append_entry(tx, events.Started(digest=parent.digest), run=parent)
    return runs.move_run(tx, starting, State.RUNNING, started_at=tx.now)


def _advance_waves(context: WorkflowContext, tx: Transaction, parent: Run) -> None:
    children = runs.list_children_briefly(tx, parent.id)
    if any(child.state in _ACTIVE_STATES for child in children):
        return
    bad = [c for c in children if c.state not in _SUCCESSFUL_STATES | {State.PENDING}]
    waiting = [child for child in children if child.state is State.PENDING]
    if waiting and bad and all(child.state is State.UNKNOWN for child in bad):
        # The host may return the outcome within seconds; its end, also by an owner, wakes us.
        names = ", ".join(_get_name(parent, child) for child in bad)
        gate.record_waiting(tx, parent, Waiting(WaitingFor.OUTCOME, names))
        return
    if waiting and not bad:
        candidates = waiting[: 1 if parent.is_sequence else _count_next_wave(children)]
        wave = _choose_wave(context, tx, parent, candidates)
        if wave:
            _log_wave(tx, parent, wave, candidates=len(candidates))
            _start_wave(context, tx, parent, wave)
        else:
            gate.record_waiting(tx, parent, Waiting(WaitingFor.CLAIM))
        return
    for child in waiting:
        why = f"Not started, because {_get_name(parent, bad[0])} ended {bad[0].state}"
        end_run(context, tx, child, State.WITHDRAWN, why)
    _end_parent(
        context,
        tx,
        parent,
        runs.list_children_briefly(tx, parent.id) if waiting else children,
        bad,
    )


def _count_next_wave(children: Sequence[Run]) -> int:
    """Return how many hosts start next: one, then a tenth of all, then the rest.

    Only a host that was changed counts as a canary, not one that needed no changes.
    """
    to_change = sum(bool(child.digest) for child in children)
    verified = sum(child.state is State.SUCCEEDED for child in children)
    if verified == 0:
        return 1
    return math.ceil(to_change / 10) if verified == 1 else to_change


def _choose_wave(
    context: WorkflowContext, tx: Transaction, parent: Run, candidates: Sequence[Run]
) -> Sequence[Run]:
    """Return the candidates that may be changed together without taking a service down.

    None may be: then an earlier host is still to come back, and its release wakes the request.
    """
    if parent.plan is None or not parent.plan.takes_down:
        return candidates
    policy = context.policies.get_policy()
    wave: list[Run] = []
    for candidate in candidates:
        child = runs.get_run(tx, candidate.id)
        if may_start_together(context, tx, policy, [*wave, child]):
            wave.append(child)
    return wave


def _log_wave(tx: Transaction, parent: Run, wave: Sequence[Run], *, candidates: int) -> None:
    """Record why the wave is as large as it is, where redundancy has a say in it."""
    if parent.plan is None or not parent.plan.takes_down:
        return
    change_log.append_entry(
        tx,
        events.WaveStarted(
            hosts=tuple(child.host for child in wave),
            reason="as many hosts as may be down while each service keeps its margin"
            if len(wave) < candidates
            else "all hosts of this wave together leave each service its margin",
        ),
        run=parent.id,
        host=wave[0].host,
    )


def _start_wave(
    context: WorkflowContext, tx: Transaction, parent: Run, wave: Sequence[Run]
) -> None:
    # Raises NoPolicyError: then none of them starts.
    context.policies.get_policy()
    if parent.waiting is not None:
        runs.amend_run(tx, parent, waiting=None)
    runs.move_runs(tx, [(child, runs.changed_copy(child, state=State.QUEUED)) for child in wave])
    for child in wave:
        # The gate checks whether the host still exists.
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
    counted = f"{good} of {len(children)} {'changes' if parent.is_sequence else 'hosts'}"
    if not unsuccessful:
        at = "" if parent.is_sequence else "on "
        end_run(context, tx, parent, State.SUCCEEDED, f"Verified {at}{counted}")
        return
    reasons = _group_by_reason(parent, unsuccessful)
    why = "; ".join(prefix_host(", ".join(names), why) for why, names in reasons.items())
    states = {child.state for child in unsuccessful}
    state = State.UNKNOWN if State.UNKNOWN in states else State.FAILED
    if State.STOPPED in states and state is State.FAILED and parent.state is State.RUNNING:
        state = State.STOPPED
    if parent.state is not state:
        at = "" if parent.is_sequence else "on "
        end_run(context, tx, parent, state, f"Succeeded {at}{counted}. {why}")


def _combine_reports(
    context: WorkflowContext,
    tx: Transaction,
    parent: Run,
    children: Sequence[Run],
    unsuccessful: Sequence[Run],
) -> Run:
    reports = [(child.host, child.report) for child in children if child.report]
    unhealthy = [host for host, report in reports if not report.healthy]
    counted = f"{len(reports) - len(unhealthy)} of {format_count(len(children), 'host')}"
    summary = f"{counted} {'is' if len(children) == 1 else 'are'} healthy"
    findings = [prefix_host(child.host, _get_end_reason(child)) for child in unsuccessful]
    findings += [
        f"{host}: {finding}"
        for host, report in reports
        for finding in report.findings or ([] if report.table else [report.summary])
    ]
    tables = [(host, report.table) for host, report in reports if report.table]
    table = None
    if tables:
        rows = [(host, *row) for host, table in tables for row in table.rows]
        table = Table(("Host", *tables[0][1].columns), rows)
    report = Report(
        summary, healthy=not unhealthy and not unsuccessful, findings=findings, table=table
    )
    state = State.FAILED if unsuccessful and not reports else State.SUCCEEDED
    return end_runs(context, tx, [RunEnd(parent, state, summary, report=report)])[0]


def _get_name(parent: Run, child: Run) -> str:
    return child.title if parent.is_sequence else child.host


def _list_unneeded(children: Sequence[Run]) -> Iterator[str]:
    """Yield the changes of a sequence that need no steps, each with the reason."""
    for child in children:
        if child.state is State.NO_CHANGES:
            reason = f"{get_run_display(child).label}: {_get_end_reason(child)}"
            yield prefix_host(child.title, reason)


def _list_left_out(tx: Transaction, parent: Run) -> Iterator[str]:
    """Yield what a sequence leaves out. To be stored: it refers to runs."""
    kept = [runs.get_run(tx, int(n)) for n in parent.values.get(NOT_UNDONE, "").split()]
    if kept:
        why = "irreversible"
        named = [
            refer_to_run(
                run.id, f"run {run.id}, {run.title}: {why}", otherwise=f"another run: {why}"
            )
            for run in kept
        ]
        yield f"Not undone: {'; '.join(named)}"
    if left_out := parent.values.get(LEFT_OUT):
        yield f"Left out: {left_out}."


def _count_steps_of_parts(parent: Run, children: Sequence[Run]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for child in children:
        label = find_label(
            parent.values, host=child.host, runbook=child.runbook, title=child.title
        )
        counts[label] = child.step_count
    return counts


def _combine_notes(parent: Run, children: Sequence[Run]) -> tuple[str, ...]:
    """Return every note once, with its hosts or changes unless it applies to all."""
    hosts_by_note: dict[str, list[str]] = {}
    for child in children:
        for note in child.plan.notes if child.plan else ():
            hosts_by_note.setdefault(note, []).append(_get_name(parent, child))
    return tuple(
        note if len(hosts) == len(children) else f"{', '.join(hosts)}: {note}"
        for note, hosts in hosts_by_note.items()
    )


def _group_by_reason(parent: Run, unsuccessful: Sequence[Run]) -> dict[str, list[str]]:
    """Return the hosts or changes for each reason why runs did not succeed."""
    groups: dict[str, list[str]] = {}
    for child in unsuccessful:
        groups.setdefault(_get_end_reason(child), []).append(_get_name(parent, child))
    return groups


def _get_end_reason(child: Run) -> str:
    return child.summary.rstrip(".") or str(child.state)
