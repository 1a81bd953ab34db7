"""An intent: a step that is written down, so that it may be sent."""

from dataclasses import dataclass

from bot.proposal import ProposedStep
from bot.run import Run
from bot.store import changelog, runs, verification
from bot.store.database import Transaction
from bot.store.witness import Checkpoint
from bot.workflow.marking import mark_of
from bot.workflow.worker import Hold
from connectors.marker import Mark


@dataclass(frozen=True)
class Intent:
    """Step n of a run. point: how far the log is with it. mark: what it is called on its host."""

    run: Run
    n: int
    step: ProposedStep
    point: Checkpoint
    mark: Mark


def intend(tx: Transaction, run: Run, hold: Hold, n: int) -> Intent:
    """Write down what is about to be sent: committed before it is."""
    if run.proposal is None:
        raise ValueError(f"run {run.id} has no plan")
    step = run.proposal.steps[n - 1]
    runs.intend(tx, run.id, n)
    entry = changelog.append(
        tx, "sending", run=run.id, host=step.host, n=n, title=step.title, command=str(step.do)
    )
    point = verification.checkpoint_at(tx, entry)
    return Intent(run, n, step, point, mark_of(tx, run, n, fence=hold.fence))
