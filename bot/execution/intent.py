"""An intent: a step that is written down, so that it may be sent."""

from dataclasses import dataclass

from bot.audit import change_log, verification
from bot.audit.checkpoints import Checkpoint
from bot.db import leases, runs
from bot.db.database import Transaction
from bot.db.lease_keeper import HeldLease
from bot.model.plan import PlannedStep
from bot.model.run import Run
from connectors.step_marker import StepMarker

_SECOND = 1_000_000


def build_step_marker(
    tx: Transaction, run: Run, step_number: int, *, fence: int = 0
) -> StepMarker:
    """Return the mark of one step: no other step of any Keyturn has it.

    fence: of whoever sends it; left out, the newest, as who takes the run over has it.

    What an older backup brings back may give a run's number out a second time, so the moment that
    it was asked for is a part of its name.
    """
    first = change_log.get_first_entry(tx)
    installation = first.hash[:12] if first else "new"
    lease = None if fence else leases.get_lease(tx, run.id)
    fence = fence or (lease.fence if lease else 1)
    return StepMarker(
        f"{installation}-{run.id}-{run.requested_at // _SECOND:x}", step_number, fence
    )


@dataclass(frozen=True)
class StepIntent:
    """Step n of a run. point: how far the log is with it. mark: what it is called on its host."""

    run: Run
    step_number: int
    step: PlannedStep
    checkpoint: Checkpoint
    marker: StepMarker


def record_step_intent(
    tx: Transaction, run: Run, held_lease: HeldLease, step_number: int
) -> StepIntent:
    """Write down what is about to be sent: committed before it is."""
    if run.plan is None:
        raise ValueError(f"run {run.id} has no plan")
    step = run.plan.steps[step_number - 1]
    runs.record_intent(tx, run.id, step_number)
    entry = change_log.append_entry(
        tx,
        "step sending",
        run=run.id,
        host=step.host,
        step=step_number,
        title=step.title,
        command=str(step.command),
    )
    point = verification.create_checkpoint_at(tx, entry)
    return StepIntent(
        run,
        step_number,
        step,
        point,
        build_step_marker(tx, run, step_number, fence=held_lease.fence),
    )
