"""Step intents: each step is recorded before it is sent."""

from dataclasses import dataclass

from bot.audit import change_log, events, verification
from bot.audit.checkpoints import Checkpoint
from bot.db import leases, runs
from bot.db.database import Transaction
from bot.db.lease_keeper import HeldLease
from bot.model.plan import PlannedStep
from bot.model.run import Run
from bot.model.times import SECOND
from connectors.step_marker import StepMarker


def build_step_marker(
    tx: Transaction, run: Run, step_number: int, *, fence: int = 0
) -> StepMarker:
    """Return the marker of a step, which is unique across installations.

    After a restore, a run number may be used again. Therefore the marker contains the time of the
    request, too.

    fence: the fencing token of the worker that sends the step; by default the newest one.
    """
    first = change_log.get_first_entry(tx)
    installation = first.hash[:12] if first else "new"
    lease = None if fence else leases.get_lease(tx, run.id)
    fence = fence or (lease.fence if lease else 1)
    return StepMarker(
        f"{installation}-{run.id}-{run.requested_at // SECOND:x}", step_number, fence
    )


@dataclass(frozen=True)
class StepIntent:
    """A step that may be sent."""

    run: Run
    step_number: int
    step: PlannedStep
    checkpoint: Checkpoint
    """The checkpoint of the change log with the intent."""
    marker: StepMarker
    required_witnesses: int = 0
    """How many witnesses have to cosign the checkpoint before the step is sent."""


def record_step_intent(
    tx: Transaction, run: Run, held_lease: HeldLease, step_number: int
) -> StepIntent:
    """Record the step that is about to be sent; commit before sending it."""
    if run.plan is None:
        raise ValueError(f"run {run.id} has no plan")
    step = run.plan.steps[step_number - 1]
    runs.record_intent(tx, run.id, step_number)
    change_log.append_entry(
        tx,
        events.StepSending(step=step_number, title=step.title, command=str(step.command)),
        run=run.id,
        host=step.host,
    )
    checkpoint = verification.create_checkpoint(tx)
    return StepIntent(
        run,
        step_number,
        step,
        checkpoint,
        build_step_marker(tx, run, step_number, fence=held_lease.fence),
    )
