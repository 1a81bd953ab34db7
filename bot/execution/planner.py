"""Plan a run: compute its remaining steps from the current state of its host.

A run is planned three times: for its approval, before its first step to see whether anything
changed, and after its last step to verify it. The plan of an undo reverts the steps of the
original run that are still in effect, in reverse order.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from bot.db import runs
from bot.db.database import Transaction
from bot.execution.questions import create_query_function
from bot.model.lasting_values import get_key_name
from bot.model.plan import PlannedStep, RemainingWork, ResolvedPlan, create_nonce
from bot.model.references import refer_to_run
from bot.model.run import Run, State, StepState
from bot.model.sequence import UNDONE_RUNS
from bot.model.text import escape_control, escape_to_one_line
from bot.policy import Policy
from bot.queries import own_runbooks
from bot.queries.approval_count import build_policy_request
from bot.queries.folded_runs import fold_runs
from bot.queries.policy_result import bind_policy_result
from bot.queries.undo import describe_changes_since
from bot.workflow.context import WorkflowContext
from connectors.command import Command, Query
from connectors.probation import (
    DEVICE,
    DRILL,
    DRILL_DAYS,
    DRILL_POLICY,
    find_armed_change,
    find_kept_change,
    query_probation,
)
from connectors.visible_text import quote_text
from runbooks import (
    AnyRunbook,
    Change,
    Check,
    NoUndo,
    Plan,
    Refused,
    Report,
    Step,
    put_on_probation,
    read_plan,
    read_report,
)
from runbooks._catalogue import compute_version, is_own


def load_runbook(context: WorkflowContext, run: Run) -> AnyRunbook:
    """Return the request of a run.

    Raises Refused if its runbook or values are not known, or the runbook is not enabled.
    """
    known = context.runbooks.get(run.runbook)
    if known is None:
        pending = own_runbooks.describe_pending(run.runbook)
        raise Refused(pending or f"the runbook {quote_text(run.runbook)} does not exist any more")
    check_enabled(context, known)
    try:
        return known.model_validate(run.values)
    except ValidationError:
        raise Refused(f"the fields of {run.runbook} have changed: request it again") from None


def load_change(context: WorkflowContext, run: Run) -> Change[Any]:
    """Return the request of a change. Raises Refused as load_runbook(), and for a check."""
    runbook = load_runbook(context, run)
    if not isinstance(runbook, Change):
        raise Refused(f"{run.runbook} is not a change")
    return runbook


def check_enabled(context: WorkflowContext, runbook: type[AnyRunbook]) -> None:
    """Raise Refused for one of the installation's own that two people have not enabled."""
    if is_own(runbook):
        # Only a transaction that can write has the key, and with it checks who signed an entry.
        with context.database.transaction() as tx:
            refusal = own_runbooks.find_refusal(tx, runbook)
        if refusal:
            raise Refused(refusal)


def run_check(context: WorkflowContext, run: Run) -> Report:
    """Run a check. Raises Refused and HostError."""
    runbook = load_runbook(context, run)
    if not isinstance(runbook, Check):
        raise Refused(f"{run.runbook} is not a check")
    run_query = create_query_function(context, person=run.requested_by)
    return read_report(runbook, run_query, runbook.report)


def compute_remaining(
    context: WorkflowContext, run: Run, policy: Policy, *, verifies: bool = False
) -> RemainingWork:
    """Read the host and return the remaining steps. verifies: every step has succeeded.

    Raises Refused and HostError.
    """
    if run.timing is not None and run.kind == "check":
        load_runbook(context, run)
        return RemainingWork("Each run only reads its host.", ())
    runbook = load_change(context, run)
    compute = runbook.plan_after if verifies else runbook.plan
    compute = runbook.plan_anyway if run.undo_of is not None else compute
    found, plan = read_plan(runbook, context.fleet.run_query, compute)
    plan = put_on_probation(runbook, plan)
    if run.state is not State.RUNNING and run.state is not State.UNKNOWN:
        plan = _check_probation(context, runbook, plan)
    if plan.steps:  # which another host may run, such as the one with ipmitool
        _ = policy.inventory[run.host].for_changing
    steps = tuple(_resolve_step(context, policy, step) for step in plan.steps)
    legs = tuple(sorted({*runbook.takes_down(), *plan.takes_down}))
    fresh = RemainingWork(plan.current_state, steps, tuple(plan.notes), legs if steps else ())
    _check_no_secrets(context, fresh)
    if run.undo_of is None:
        _check_unsigned(policy, run, fresh.steps)
        return fresh
    left = _compute_remaining_undo(context, policy, run, run.undo_of, fresh)
    if not left.steps:
        return left
    _check_unsigned(policy, run, left.steps)
    runbook.refuse_undo(found)
    return replace(left, takes_down=legs)


def _check_unsigned(policy: Policy, run: Run, steps: Sequence[PlannedStep]) -> None:
    """Raise Refused for a step that its host runs only if people sign, where no one does."""
    request = build_policy_request(run, now=0)
    if request.agent is None and request.source != "schedule":
        return
    who = "an agent" if request.agent else "a schedule"
    for step in steps:
        host = policy.inventory[step.host]
        if host.signed and not host.runs_unsigned(step.command):
            raise Refused(
                f"{host.name} runs this only if people sign it, and {who} signs nothing: "
                f"{step.command}. Add these words to `unsigned` of the host in inventory.yaml and "
                "on the host, or request the change yourself"
            )


def _check_probation(context: WorkflowContext, runbook: Change[Any], plan: Plan) -> Plan:
    """Return the plan with notes on its probation. Raises Refused for a second probation."""
    probation = runbook.get_probation()
    if probation is None or not plan.steps:
        return plan
    host = plan.steps[0].host
    status = context.fleet.run_query(host, query_probation(probation.name, probation.seconds))
    # The next probation makes up for a timer that was lost.
    if status.armed and status.seconds_left > 0:
        raise Refused(
            f"{probation.name} of {host} is on probation already: in {status.seconds_left} s the "
            "host restores what was, unless the change is confirmed. Try again then"
        )
    note = (
        f"Unless Keyturn confirms the change over a new connection within {status.lasts} s, the "
        "host restores what was by itself, also after a reboot."
    )
    plan = replace(plan, notes=[*plan.notes, note])
    if status.drill_seconds is not None and status.drill_seconds < DRILL_DAYS * 86400:
        return plan
    missing = (
        f"no drill within {DRILL_DAYS} days has proved that {host} restores by itself: run "
        f"`keyturn request probation drill {host}`"
    )
    if context.fleet.run_query(host, Query(DRILL_POLICY, str)) == "required":
        raise Refused(f"{missing} first")
    return replace(plan, notes=[*plan.notes, f"{missing[0].upper()}{missing[1:]}."])


def _check_no_secrets(context: WorkflowContext, remaining: RemainingWork) -> None:
    """Raise Refused if a plan contains a secret, because plans are shown and kept for ever."""
    shown = [remaining.current_state, *remaining.notes]
    for step in remaining.steps:
        shown += [
            step.title,
            step.undo_title,
            step.before,
            step.after,
            str(step.command),
            str(step.undo or ""),
        ]
    # One search of the whole text first, because it rarely contains a secret.
    redactor = context.database.redactor
    if redactor.has_secret("\n".join(shown)) and any(map(redactor.has_secret, shown)):
        raise Refused(
            "the plan would show a password or a key to everyone, for ever: Keyturn cannot do this"
        )


def resolve_plan(
    context: WorkflowContext,
    run: Run,
    policy: Policy,
    remaining: RemainingWork,
    *,
    expires_at: int,
) -> ResolvedPlan:
    """Return the plan that people are shown and approve."""
    return ResolvedPlan(
        run=run.id,
        reason=run.reason,
        installation=context.installation,
        runbook=run.runbook,
        runbook_version=compute_version(context.runbooks[run.runbook]),
        values=run.values,
        requested_by=run.requested_by,
        expires_at=expires_at,
        policy_version=policy.version,
        current_state=remaining.current_state,
        steps=remaining.steps,
        notes=remaining.notes,
        undo_of=run.undo_of,
        timing=run.timing,
        host_keys={run.host: policy.inventory[run.host].fingerprint} if run.timing else {},
        schedule_lifetime=context.schedule_lifetime if run.timing else 0,
        takes_down=tuple(map(str, remaining.takes_down)),
        guard_override=run.guard_override,
        ticket=remaining.ticket,
    )


def issue_plan(tx: Transaction, policy: Policy, run: Run, plan: ResolvedPlan) -> ResolvedPlan:
    """Return the plan as one of its own, which no other approval or signature fits.

    Raises PlanTextError if it holds a character that people cannot see.
    """
    issued = replace(
        bind_policy_result(tx, policy, run, plan), not_before=tx.now, nonce=create_nonce()
    )
    _ = issued.digest
    return issued


def _resolve_step(context: WorkflowContext, policy: Policy, step: Step) -> PlannedStep:
    undo = step.undo
    return PlannedStep(
        title=escape_to_one_line(step.title),
        host=step.host,
        fingerprint=policy.inventory[step.host].fingerprint,
        command=context.fleet.resolve_command(step.host, step.do),
        undo=None if isinstance(undo, NoUndo) else context.fleet.resolve_command(step.host, undo),
        no_undo_reason=escape_to_one_line(undo.reason) if isinstance(undo, NoUndo) else "",
        before=_escape_text(step.before),
        after=_escape_text(step.after),
        undo_title=escape_to_one_line(step.undo_title),
    )


def _escape_text(text: str) -> str:
    """Return a text for people, some of which hosts return, as a plan can hold it."""
    return escape_control(text).replace("\t", "\\t")


def _compute_remaining_undo(
    context: WorkflowContext, policy: Policy, undo: Run, original_id: int, remaining: RemainingWork
) -> RemainingWork:
    """Return steps that revert the original run, as far as it is still in effect.

    A step that the runbook would execute again is not in effect any more: it was undone, or
    something else has changed the same setting, which an undo would overwrite. Neither is a step
    whose undo the runbook plans now: its command may differ by now, such as for a newer list of a
    feed, but the host is as it was before the step.
    """
    with context.database.reading() as tx:
        original = runs.get_run(tx, original_id)
        plan = original.plan
        records = runs.list_steps(tx, original_id)
        later = _list_later_undone_runs(context, tx, undo, original)
    if plan is None:
        raise Refused(f"run {original_id} had no plan")
    sent = [record.step_number for record in records if record.state is not StepState.FAILED]
    wanted_again = {_get_command_key(step) for step in remaining.steps}
    as_before = {_get_undo_key(step) for step in remaining.steps if step.undo is not None}
    done = [plan.steps[n - 1] for n in sent]
    if later and _is_in_effect(context, later[-1]):
        # The undo of the later ones too is the value before the first.
        wanted_again = set[tuple[str, Command]]()
    in_effect = [
        step
        for step in done
        if _get_command_key(step) not in wanted_again and _get_undo_key(step) not in as_before
    ]
    if all(map(_belongs_to_probation, in_effect)):
        with context.database.reading() as tx:
            since = describe_changes_since(tx, policy, context.runbooks, original)
        why = f". Since then, {since}" if since else ""
        keeps = f". The undo would overwrite this: {remaining.current_state}" if since else ""
        return RemainingWork(
            f"the changes of run {original_id} are not in effect any more{why}{keeps}", ()
        )
    undone = [f"run {original_id}", *(refer_to_run(run.id) for run in later)]
    return RemainingWork(
        f"run {original_id} is in effect: {remaining.current_state}",
        tuple(_build_undo_step(policy, step) for step in reversed(in_effect)),
        (f"Undoes {' and '.join(undone)}.",),
    )


def _list_later_undone_runs(
    context: WorkflowContext, tx: Transaction, undo: Run, original: Run
) -> Sequence[Run]:
    """Return the later changes of the same value, if a sequence undoes all of them too."""
    parent = runs.get_run(tx, undo.parent) if undo.parent is not None else None
    if parent is None or not parent.is_sequence:
        return ()
    undone = set(parent.values.get(UNDONE_RUNS, "").split())
    changes = runs.list_changes_of_host(tx, original.host)
    stack = fold_runs(changes, context.runbooks).values.get(
        get_key_name(context.runbooks, original), []
    )
    numbers = [run.id for run in stack]
    later = stack[numbers.index(original.id) + 1 :] if original.id in numbers else []
    return later if all(str(run.id) in undone for run in later) else ()


def _is_in_effect(context: WorkflowContext, run: Run) -> bool:
    """Return whether a host is still as a run has set it."""
    runbook = load_runbook(context, run)
    if not isinstance(runbook, Change):
        return False
    _, plan = read_plan(runbook, context.fleet.run_query, runbook.plan_anyway)
    return not plan.steps


def _belongs_to_probation(step: PlannedStep) -> bool:
    """Return whether the step only arms or keeps.

    A drill is nothing but such a step, and a network device arms with the lines of its change.
    """
    found = find_armed_change(step.command) or find_kept_change(step.command)
    return found is not None and found.name not in {DRILL.name, DEVICE.name}


def _get_undo_key(step: PlannedStep) -> tuple[str, Command | None, str]:
    return step.host, step.undo, step.before


def _get_command_key(step: PlannedStep) -> tuple[str, Command]:
    return step.host, step.command


def _build_undo_step(policy: Policy, step: PlannedStep) -> PlannedStep:
    if step.undo is None:
        raise Refused(f"“{step.title}” cannot be undone: {step.no_undo_reason}")
    return PlannedStep(
        title=step.undo_title or f"Undo: {step.title}",
        host=step.host,
        # The host's key as it is now: it may have been given another since.
        fingerprint=policy.inventory[step.host].fingerprint,
        command=step.undo,
        undo=step.command,
        before=step.after,
        after=step.before,
        undo_title=step.title,
    )
