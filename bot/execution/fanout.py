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

_GOOD = frozenset({State.SUCCEEDED, State.UNCHANGED})
_ACTIVE = frozenset({State.READY, State.STARTING, State.RUNNING})


def advance_fanout(parts: WorkflowContext, number: int) -> None:
    """Bring the whole request as far as its children let it go."""
    with parts.database.reading() as tx:
        if _waits(tx, number):
            return
    with parts.database.transaction() as tx:
        whole = runs.lock_run(tx, number)
        if whole.state is State.ASKED:
            whole = _gathered(parts, tx, whole, runs.list_children(tx, number))
        if whole.state is State.READY:
            whole = (start_schedule.start_schedule if whole.timing else _opened)(parts, tx, whole)
        if whole.state in {State.RUNNING, State.UNKNOWN}:
            _next_wave(parts, tx, whole)


def _waits(tx: Transaction, number: int) -> bool:
    """Say whether it can only wait: each of its hosts says so when it is done.

    Whichever of them comes last finds none at work before it, so that not all are looked at anew
    for each.
    """
    state = runs.get_run(tx, number).state
    if state is State.ASKED:
        return runs.has_child_in(tx, number, [State.ASKED])
    if state in {State.RUNNING, State.UNKNOWN}:
        return runs.has_child_in(tx, number, _ACTIVE)
    # Of one that has come to its end, its last hosts may say so late.
    return state is not State.READY


def _gathered(parts: WorkflowContext, tx: Transaction, whole: Run, children: Sequence[Run]) -> Run:
    """Make one plan, or one report, of what every host said; as long as one is silent, wait."""
    if any(child.state is State.ASKED for child in children):
        return whole
    bad = [child for child in children if child.state not in _GOOD | {State.WAITING}]
    if bad and whole.kind == "change":
        why = "; ".join(prefix_host(child.host, _why(child)) for child in bad)
        return end_run(parts, tx, whole, bad[0].state, f"{why}. Nothing was sent to any host.")
    if whole.kind == "check" and whole.timing is None:
        return _reported(parts, tx, whole, children, bad)
    waiting = [child for child in children if child.state is State.WAITING]
    if not waiting:
        summary = f"No changes on any of {len(children)} hosts"
        return end_run(parts, tx, whole, State.UNCHANGED, summary)
    return _shown(parts, tx, whole, waiting)


def _shown(parts: WorkflowContext, tx: Transaction, whole: Run, waiting: Sequence[Run]) -> Run:
    """Show the plan of all hosts as one, for one approval of one digest."""
    proposals = [child.proposal for child in waiting if child.proposal]
    first = proposals[0]
    proposal = ResolvedPlan(
        runbook=first.runbook,
        runbook_version=first.runbook_version,
        fields=whole.fields,
        asked_by=whole.asked_by,
        expires=min(proposal.expires for proposal in proposals),
        policy_version=first.policy_version,
        because="; ".join(
            f"{child.host}: {child.proposal.because}" for child in waiting if child.proposal
        ),
        steps=tuple(step for proposal in proposals for step in proposal.steps),
        notes=_notes(waiting),
        undo_of=whole.undo_of,
        timing=whole.timing,
        keys={host: key for proposal in proposals for host, key in proposal.keys.items()},
        lapse=first.lapse,
    )
    return submit_plan(parts, tx, whole, proposal)


def _opened(parts: WorkflowContext, tx: Transaction, whole: Run) -> Run:
    """Start the request as a whole; each of its hosts is still to pass the gate by itself."""
    policy: Policy = parts.policies.current()
    try:
        gate.authorise_run(parts, tx, whole, policy)
    except gate.GateShut as shut:
        return gate.end_refused_run(parts, tx, whole, shut)
    starting = runs.move_run(tx, whole, State.STARTING)
    change_log.append_entry(tx, "started", run=whole.id, host=whole.host, digest=whole.digest)
    return runs.move_run(tx, starting, State.RUNNING, started=tx.now)


def _next_wave(parts: WorkflowContext, tx: Transaction, whole: Run) -> None:
    children = runs.list_children_briefly(tx, whole.id)
    if any(child.state in _ACTIVE for child in children):
        return
    bad = [c for c in children if c.state not in _GOOD | {State.WAITING}]
    waiting = [child for child in children if child.state is State.WAITING]
    if waiting and not bad:
        _start(parts, tx, whole, waiting[: _wave(children)])
        return
    for child in waiting:
        why = f"Not started, since {bad[0].host} ended {bad[0].state}"
        end_run(parts, tx, child, State.WITHDRAWN, why)
    _conclude(
        parts, tx, whole, runs.list_children_briefly(tx, whole.id) if waiting else children, bad
    )


def _wave(children: Sequence[Run]) -> int:
    """Return how many hosts come next: one, then a tenth of all, then the rest.

    Only a host that was changed shows anything: one that was as asked already is no canary.
    """
    to_change = sum(bool(child.digest) for child in children)
    proven = sum(child.state is State.SUCCEEDED for child in children)
    if proven == 0:
        return 1
    return math.ceil(to_change / 10) if proven == 1 else to_change


def _start(parts: WorkflowContext, tx: Transaction, whole: Run, wave: Sequence[Run]) -> None:
    # Raises NoPolicy: then none of them is started.
    parts.policies.current()
    runs.move_runs(tx, [(child, runs.changed_copy(child, state=State.READY)) for child in wave])
    for child in wave:
        # Whether its host is still there, the gate says.
        parts.dispatch.enqueue(tx, child.id, get_site(parts, child.host))
    outbox.announce_run(tx, whole.id)


def _conclude(
    parts: WorkflowContext,
    tx: Transaction,
    whole: Run,
    children: Sequence[Run],
    bad: Sequence[Run],
) -> None:
    good = sum(child.state in _GOOD for child in children)
    counted = f"{good} of {len(children)} hosts"
    if not bad:
        end_run(parts, tx, whole, State.SUCCEEDED, f"Proven on {counted}")
        return
    why = "; ".join(prefix_host(", ".join(hosts), why) for why, hosts in _reasons(bad).items())
    states = {child.state for child in bad}
    state = State.UNKNOWN if State.UNKNOWN in states else State.FAILED
    if State.STOPPED in states and state is State.FAILED and whole.state is State.RUNNING:
        state = State.STOPPED
    if whole.state is not state:
        end_run(parts, tx, whole, state, f"Done on {counted}. {why}")


def _reported(
    parts: WorkflowContext,
    tx: Transaction,
    whole: Run,
    children: Sequence[Run],
    bad: Sequence[Run],
) -> Run:
    told = [(child.host, child.report) for child in children if child.report]
    unwell = [host for host, report in told if not report.healthy]
    summary = f"{len(told) - len(unwell)} of {len(children)} hosts are well"
    findings = [prefix_host(child.host, _why(child)) for child in bad]
    findings += [f"{host}: {finding}" for host, report in told for finding in report.findings]
    tables = [(host, report.table) for host, report in told if report.table]
    table = None
    if tables:
        rows = [(host, *row) for host, table in tables for row in table.rows]
        table = Table(("Host", *tables[0][1].columns), rows)
    report = Report(summary, healthy=not unwell and not bad, findings=findings, table=table)
    state = State.FAILED if bad and not told else State.SUCCEEDED
    return end_runs(parts, tx, [RunEnd(whole, state, summary, report=report)])[0]


def _notes(children: Sequence[Run]) -> tuple[str, ...]:
    """Return every note once, with the hosts that it is about unless it is about all."""
    about: dict[str, list[str]] = {}
    for child in children:
        for note in child.proposal.notes if child.proposal else ():
            about.setdefault(note, []).append(child.host)
    return tuple(
        note if len(hosts) == len(children) else f"{', '.join(hosts)}: {note}"
        for note, hosts in about.items()
    )


def _reasons(bad: Sequence[Run]) -> dict[str, list[str]]:
    """Return why hosts did not come to a good end, each reason once with its hosts."""
    found: dict[str, list[str]] = {}
    for child in bad:
        found.setdefault(_why(child), []).append(child.host)
    return found


def _why(child: Run) -> str:
    return child.summary.rstrip(".") or str(child.state)
