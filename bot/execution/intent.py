"""An intent: a step that is written down, so that it may be sent."""

from dataclasses import dataclass

from bot.audit import change_log, verification
from bot.audit.checkpoints import Checkpoint
from bot.db import leases, runs
from bot.db.database import Transaction
from bot.execution.lease_keeper import HeldRun
from bot.model.plan import PlannedStep
from bot.model.run import Run
from connectors.step_marker import StepMarker

_SECOND = 1_000_000


def name_step_marker(tx: Transaction, run: Run, n: int, *, fence: int = 0) -> StepMarker:
    """Return the mark of one step: no other step of any Keyturn has it.

    fence: of whoever sends it; left out, the newest, as who takes the run over has it.

    What an older backup brings back may give a run's number out a second time, so the moment that
    it was asked for is a part of its name.
    """
    first = change_log.get_first_entry(tx)
    installation = first.hash[:12] if first else "new"
    lease = None if fence else leases.get_lease(tx, run.id)
    fence = fence or (lease.fence if lease else 1)
    return StepMarker(f"{installation}-{run.id}-{run.asked // _SECOND:x}", n, fence)


@dataclass(frozen=True)
class Intent:
    """Step n of a run. point: how far the log is with it. mark: what it is called on its host."""

    run: Run
    n: int
    step: PlannedStep
    point: Checkpoint
    mark: StepMarker


def record_step_intent(tx: Transaction, run: Run, hold: HeldRun, n: int) -> Intent:
    """Write down what is about to be sent: committed before it is."""
    if run.proposal is None:
        raise ValueError(f"run {run.id} has no plan")
    step = run.proposal.steps[n - 1]
    runs.record_intent(tx, run.id, n)
    entry = change_log.append_entry(
        tx, "sending", run=run.id, host=step.host, n=n, title=step.title, command=str(step.do)
    )
    point = verification.make_checkpoint_at(tx, entry)
    return Intent(run, n, step, point, name_step_marker(tx, run, n, fence=hold.fence))
