"""Planning: what is still to be done for a run, from what its host says now.

This is the one question that is put three times: to show the plan, to see whether anything moved,
and to prove that nothing is left. For an undo the answer is the other way round: what the original
run did and what is still in effect, backwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from bot.db import runs
from bot.execution.questions import create_query_function
from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import Run, StepState
from bot.policy import Policy
from bot.workflow.context import WorkflowContext
from connectors.command import Shell, SwitchLines, quote_text
from runbooks import AnyRunbook, Change, Check, NoUndo, Refused, Report, Step
from runbooks._catalogue import compute_version


@dataclass(frozen=True)
class RemainingWork:
    """What is left to do. No steps: all is as asked."""

    current_state: str
    steps: Sequence[PlannedStep]
    notes: Sequence[str] = ()


def load_runbook(context: WorkflowContext, run: Run) -> AnyRunbook:
    """Return the request itself. Raises Refused if this version of Keyturn does not know it."""
    known = context.runbooks.get(run.runbook)
    if known is None:
        raise Refused(f"there is no runbook {quote_text(run.runbook)} any more")
    try:
        return known.model_validate(run.values)
    except ValidationError:
        raise Refused(f"{run.runbook} takes other values now: ask for it anew") from None


def run_check(context: WorkflowContext, run: Run) -> Report:
    """Carry out a check. Raises Refused and HostError."""
    runbook = load_runbook(context, run)
    if not isinstance(runbook, Check):
        raise Refused(f"{run.runbook} is not a check")
    return runbook.report(runbook.read(create_query_function(context, person=run.requested_by)))


def compute_remaining(context: WorkflowContext, run: Run, policy: Policy) -> RemainingWork:
    """Read the host and say what is left to do. Raises Refused and HostError."""
    runbook = load_runbook(context, run)
    if run.timing is not None and isinstance(runbook, Check):
        return RemainingWork("Each run only reads its host.", ())
    if not isinstance(runbook, Change):
        raise Refused(f"{run.runbook} is not a change")
    found = runbook.read(context.fleet.run_query)
    plan = runbook.plan(found) if run.undo_of is None else runbook.plan_anyway(found)
    steps = tuple(_resolve_step(context, policy, step) for step in plan.steps)
    fresh = RemainingWork(plan.current_state, steps, tuple(plan.notes))
    _check_no_secrets(context, fresh)
    if run.undo_of is None:
        return fresh
    left = _compute_remaining_undo(context, policy, run.undo_of, fresh)
    if left.steps:
        runbook.refuse_undo(found)
    return left


def _check_no_secrets(context: WorkflowContext, remaining: RemainingWork) -> None:
    """Raise Refused if a plan would show a secret: a plan is shown, and kept for good."""
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
    # What holds none as a whole holds none in its parts.
    redactor = context.database.redactor
    if redactor.has_secret("\n".join(shown)) and any(map(redactor.has_secret, shown)):
        raise Refused(
            "the plan would show a password or a key, to everybody and for good: it cannot be "
            "done with Keyturn"
        )


def resolve_plan(
    context: WorkflowContext,
    run: Run,
    policy: Policy,
    remaining: RemainingWork,
    *,
    expires_at: int,
) -> ResolvedPlan:
    """Return what people will be asked to approve."""
    return ResolvedPlan(
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
    )


def _resolve_step(context: WorkflowContext, policy: Policy, step: Step) -> PlannedStep:
    undo = step.undo
    return PlannedStep(
        title=step.title,
        host=step.host,
        fingerprint=policy.inventory[step.host].fingerprint,
        command=context.fleet.resolve_command(step.host, step.do),
        undo=None if isinstance(undo, NoUndo) else context.fleet.resolve_command(step.host, undo),
        no_undo_reason=undo.reason if isinstance(undo, NoUndo) else "",
        before=step.before,
        after=step.after,
        undo_title=step.undo_title,
    )


def _compute_remaining_undo(
    context: WorkflowContext, policy: Policy, original_id: int, remaining: RemainingWork
) -> RemainingWork:
    """Turn the original run's steps round, as far as they are still in effect.

    A step that its own runbook would do again is not in effect any more: it was undone, or
    something else changed the same thing since, and then undoing would overwrite that. Neither is
    one from which the runbook would come back to the very same: what it would do may be something
    else by now, such as the newer list of a feed, but the host is as it was before the step.
    """
    with context.database.reading() as tx:
        proposal = runs.get_run(tx, original_id).plan
        records = runs.list_steps(tx, original_id)
    if proposal is None:
        raise Refused(f"run {original_id} had no plan")
    sent = [record.step_number for record in records if record.state is not StepState.FAILED]
    wanted_again = {_get_command_key(step) for step in remaining.steps}
    as_before = {_get_undo_key(step) for step in remaining.steps if step.undo is not None}
    done = [proposal.steps[n - 1] for n in sent]
    in_effect = [
        step
        for step in done
        if _get_command_key(step) not in wanted_again and _get_undo_key(step) not in as_before
    ]
    if not in_effect:
        return RemainingWork(f"what run {original_id} did is not in effect any more", ())
    return RemainingWork(
        f"run {original_id} is still in effect: {remaining.current_state}",
        tuple(_build_undo_step(policy, step) for step in reversed(in_effect)),
        (f"Takes back run {original_id}.",),
    )


def _get_undo_key(step: PlannedStep) -> tuple[str, Shell | SwitchLines | None, str]:
    return step.host, step.undo, step.before


def _get_command_key(step: PlannedStep) -> tuple[str, Shell | SwitchLines]:
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
