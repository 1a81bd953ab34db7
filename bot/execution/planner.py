"""Planning: what is still to be done for a run, from what its host says now.

This is the one question that is put three times: to show the plan, to see whether anything moved,
and to prove that nothing is left. For an undo the answer is the other way round: what the original
run did and what is still in effect, backwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from bot.db import runs
from bot.execution.questions import asking
from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import Run, StepState
from bot.policy import Policy
from bot.workflow.context import WorkflowContext
from connectors.command import Shell, SwitchLines, quote_text
from runbooks import AnyRunbook, Change, Check, NoUndo, Refused, Report, Step
from runbooks._catalogue import compute_version


@dataclass(frozen=True)
class Remaining:
    """What is left to do. No steps: all is as asked."""

    because: str
    steps: Sequence[PlannedStep]
    notes: Sequence[str] = ()


def load_runbook(parts: WorkflowContext, run: Run) -> AnyRunbook:
    """Return the request itself. Raises Refused if this version of Keyturn does not know it."""
    known = parts.runbooks.get(run.words)
    if known is None:
        raise Refused(f"there is no runbook {quote_text(run.words)} any more")
    try:
        return known.model_validate(run.fields)
    except ValidationError:
        raise Refused(f"{run.words} takes other values now: ask for it anew") from None


def run_check(parts: WorkflowContext, run: Run) -> Report:
    """Carry out a check. Raises Refused and HostError."""
    runbook = load_runbook(parts, run)
    if not isinstance(runbook, Check):
        raise Refused(f"{run.words} is not a check")
    return runbook.report(runbook.read(asking(parts, person=run.asked_by)))


def compute_remaining(parts: WorkflowContext, run: Run, policy: Policy) -> Remaining:
    """Read the host and say what is left to do. Raises Refused and HostError."""
    runbook = load_runbook(parts, run)
    if run.timing is not None and isinstance(runbook, Check):
        return Remaining("Each run only reads its host.", ())
    if not isinstance(runbook, Change):
        raise Refused(f"{run.words} is not a change")
    found = runbook.read(parts.fleet.run_query)
    plan = runbook.plan(found) if run.undo_of is None else runbook.plan_anyway(found)
    steps = tuple(_proposed(parts, policy, step) for step in plan.steps)
    fresh = Remaining(plan.current_state, steps, tuple(plan.notes))
    _refuse_secrets(parts, fresh)
    if run.undo_of is None:
        return fresh
    left = _backwards(parts, policy, run.undo_of, fresh)
    if left.steps:
        runbook.refuse_undo(found)
    return left


def _refuse_secrets(parts: WorkflowContext, left: Remaining) -> None:
    """Raise Refused if a plan would show a secret: a plan is shown, and kept for good."""
    shown = [left.because, *left.notes]
    for step in left.steps:
        shown += [
            step.title,
            step.undo_title,
            step.before,
            step.after,
            str(step.do),
            str(step.undo or ""),
        ]
    # What holds none as a whole holds none in its parts.
    redactor = parts.database.redactor
    if redactor.holds("\n".join(shown)) and any(map(redactor.holds, shown)):
        raise Refused(
            "the plan would show a password or a key, to everybody and for good: it cannot be "
            "done with Keyturn"
        )


def resolve_plan(
    parts: WorkflowContext, run: Run, policy: Policy, left: Remaining, *, expires: int
) -> ResolvedPlan:
    """Return what people will be asked to approve."""
    return ResolvedPlan(
        runbook=run.words,
        runbook_version=compute_version(parts.runbooks[run.words]),
        fields=run.fields,
        asked_by=run.asked_by,
        expires=expires,
        policy_version=policy.version,
        because=left.because,
        steps=left.steps,
        notes=left.notes,
        undo_of=run.undo_of,
        timing=run.timing,
        keys={run.host: policy.inventory[run.host].fingerprint} if run.timing else {},
        lapse=parts.lapse if run.timing else 0,
    )


def _proposed(parts: WorkflowContext, policy: Policy, step: Step) -> PlannedStep:
    undo = step.undo
    return PlannedStep(
        title=step.title,
        host=step.host,
        fingerprint=policy.inventory[step.host].fingerprint,
        do=parts.fleet.resolve(step.host, step.do),
        undo=None if isinstance(undo, NoUndo) else parts.fleet.resolve(step.host, undo),
        no_undo=undo.reason if isinstance(undo, NoUndo) else "",
        before=step.before,
        after=step.after,
        undo_title=step.undo_title,
    )


def _backwards(
    parts: WorkflowContext, policy: Policy, original: int, fresh: Remaining
) -> Remaining:
    """Turn the original run's steps round, as far as they are still in effect.

    A step that its own runbook would do again is not in effect any more: it was undone, or
    something else changed the same thing since, and then undoing would overwrite that. Neither is
    one from which the runbook would come back to the very same: what it would do may be something
    else by now, such as the newer list of a feed, but the host is as it was before the step.
    """
    with parts.database.reading() as tx:
        proposal = runs.get_run(tx, original).proposal
        records = runs.list_steps(tx, original)
    if proposal is None:
        raise Refused(f"run {original} had no plan")
    sent = [record.n for record in records if record.state is not StepState.FAILED]
    wanted_again = {_work(step) for step in fresh.steps}
    as_before = {_back(step) for step in fresh.steps if step.undo is not None}
    done = [proposal.steps[n - 1] for n in sent]
    in_effect = [
        step for step in done if _work(step) not in wanted_again and _back(step) not in as_before
    ]
    if not in_effect:
        return Remaining(f"what run {original} did is not in effect any more", ())
    return Remaining(
        f"run {original} is still in effect: {fresh.because}",
        tuple(_turned(policy, step) for step in reversed(in_effect)),
        (f"Takes back run {original}.",),
    )


def _back(step: PlannedStep) -> tuple[str, Shell | SwitchLines | None, str]:
    return step.host, step.undo, step.before


def _work(step: PlannedStep) -> tuple[str, Shell | SwitchLines]:
    return step.host, step.do


def _turned(policy: Policy, step: PlannedStep) -> PlannedStep:
    if step.undo is None:
        raise Refused(f"“{step.title}” cannot be undone: {step.no_undo}")
    return PlannedStep(
        title=step.undo_title or f"Undo: {step.title}",
        host=step.host,
        # The host's key as it is now: it may have been given another since.
        fingerprint=policy.inventory[step.host].fingerprint,
        do=step.undo,
        undo=step.do,
        before=step.after,
        after=step.before,
        undo_title=step.title,
    )
