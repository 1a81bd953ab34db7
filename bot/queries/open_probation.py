"""Which change of a run is on probation: armed on its host, and neither kept nor restored."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.db import runs
from bot.db.database import Transaction
from bot.model.run import Run, StepRecord, StepState
from bot.model.times import SECOND, format_deadline
from connectors.probation import find_armed_change, find_kept_change, get_armed_seconds


@dataclass(frozen=True)
class OpenProbation:
    """A change that a run has put on probation."""

    host: str
    name: str
    change: str
    restores_at: int
    """When the host restores it, or a little later: by the database's clock, in microseconds."""

    def __str__(self) -> str:
        return f"The change of {self.host} ({self.name})"

    @property
    def sentence(self) -> str:
        """What the host does at the end of the time, for people who watch."""
        at = format_deadline(self.restores_at)
        return f"On probation: {self.host} restores what was at {at}, unless Keyturn keeps it"


def find_open_probation(tx: Transaction, run: Run) -> OpenProbation | None:
    """Return the change that the host restores unless it is kept, as far as Keyturn knows."""
    return get_open_probation(run, runs.list_steps(tx, run.id) if run.plan else ())


def get_open_probation(run: Run, records: Sequence[StepRecord]) -> OpenProbation | None:
    """Return the same from the records of the steps that were sent."""
    found = None
    for record in records if not run.hosts else ():
        step = run.plan.steps[record.step_number - 1] if run.plan else None
        if step is None or record.state is StepState.FAILED:
            continue
        if armed := find_armed_change(step.command):
            restores_at = record.sent_at + get_armed_seconds(step.command) * SECOND
            found = OpenProbation(step.host, armed.name, armed.change, restores_at)
        elif find_kept_change(step.command) and record.state is StepState.SUCCEEDED:
            found = None
    return found
