"""What an erasure of a run's output would remove, who requested it and who may confirm it."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.db import outputs, runs
from bot.db.database import Transaction
from bot.db.outputs import StoredOutput
from bot.model.canonical import hash_canonical
from bot.model.run import Run
from bot.policy import Policy


@dataclass(frozen=True)
class ErasurePreview:
    """What an erasure would remove, and whether it is requested."""

    request: Entry | None
    """The log entry of the open request; None if there is none."""
    outputs: Sequence[StoredOutput]
    """Outputs of the run and its child runs, in the order of the log."""
    declined: Entry | None = None
    """The log entry that declined the last request, unless there is a newer request."""

    @property
    def digest(self) -> str:
        """The digest that a confirmation names: it covers the request and these outputs."""
        seq = self.request.seq if self.request else 0
        return hash_canonical({"asked": seq, "answers": [kept.entry_seq for kept in self.outputs]})


def preview_erasure(tx: Transaction, run: Run) -> ErasurePreview:
    """Return what would be erased of a run now."""
    run_ids = [run.id, *(child.id for child in runs.list_children(tx, run.id))]
    stored = [kept for number in run_ids for kept in outputs.list_stored_output(tx, number)]
    last = _get_last_erasure_entry(tx, run.id) if stored else None
    return ErasurePreview(
        last if last and isinstance(last.event, events.ErasureRequested) else None,
        sorted(stored, key=lambda kept: kept.entry_seq),
        last if last and isinstance(last.event, events.ErasureDeclined) else None,
    )


def get_declined_erasure(tx: Transaction, number: int) -> Entry | None:
    """Return the log entry that declined the last request; None if it was not declined."""
    last = _get_last_erasure_entry(tx, number)
    return last if last and isinstance(last.event, events.ErasureDeclined) else None


def _get_last_erasure_entry(tx: Transaction, number: int) -> Entry | None:
    kinds = [
        events.ErasureRequested.kind,
        events.ErasureDeclined.kind,
        events.OutputErased.kind,
    ]
    entries = change_log.list_entries_of_run(tx, number, kinds)
    return entries[-1] if entries else None


def get_confirmation_refusal(policy: Policy, run: Run, request: Entry, person: str) -> str:
    """Return why this person cannot confirm the erasure; "" if they can."""
    if person == request.person:
        return "you requested it: another person has to confirm it"
    known = policy.organisation.areas
    missing = [name for name in run.areas if name not in known]
    if missing:
        return (
            f"the policy has no area {missing[0]} any more, so it has no owner who could confirm"
        )
    if any(person not in known[name].owners for name in run.areas):
        return f"only an owner of {policy.join_area_titles(run.areas)} can confirm it"
    return ""
