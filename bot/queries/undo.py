"""Why an undo is not the inverse any more: what has changed the same value since."""

from collections.abc import Iterator, Mapping, Sequence

from bot.audit import change_log, events
from bot.db import runs
from bot.db.database import Transaction
from bot.model.lasting_values import get_key_name, join_values
from bot.model.references import refer_to_run
from bot.model.run import Run, State
from bot.model.times import format_utc
from bot.policy import Policy
from runbooks import AnyRunbook

# How many changes are named; the last ones matter most.
_MAX_CHANGES = 5


def list_later_runs(
    tx: Transaction, runbooks: Mapping[str, type[AnyRunbook]], run: Run
) -> Sequence[Run]:
    """Return the runs that have changed the same value after a run, oldest first."""
    key = get_key_name(runbooks, run)
    changes = runs.list_changes_of_host(tx, run.host) if key else []
    return [
        one
        for one in changes
        if one.id != run.id
        and one.state is State.SUCCEEDED
        and (one.started_at or 0) > (run.started_at or 0)
        and get_key_name(runbooks, one) == key
    ]


def describe_changes_since(
    tx: Transaction, policy: Policy, runbooks: Mapping[str, type[AnyRunbook]], run: Run
) -> str:
    """Return what changed the value of a run since, in order; "" if nothing is known.

    To be stored: it refers to runs that not every reader may view.
    """
    found = sorted(_list_changes(tx, policy, runbooks, run))
    return "; ".join(text for _, text in found[-_MAX_CHANGES:])


def _list_changes(
    tx: Transaction, policy: Policy, runbooks: Mapping[str, type[AnyRunbook]], run: Run
) -> Iterator[tuple[int, str]]:
    key, later = get_key_name(runbooks, run), list_later_runs(tx, runbooks, run)
    for one in later:
        at = one.started_at or one.requested_at
        plan = runs.get_run(tx, one.id).plan
        value = join_values([step.after for step in plan.steps]) if plan else ""
        did = f"undid run {one.undo_of}" if one.undo_of is not None else "set it"
        who = policy.get_person_name(one.requested_by)
        to = f" to {value}" if value else ""
        words = f"run {one.id} of {who} {did}{to}"
        by = refer_to_run(one.id, words, otherwise="another run changed it")
        yield at, f"{by} on {format_utc(at)}"
    for one in (run, *later):
        for entry in change_log.list_entries_of_run(tx, one.id, [events.DriftFound.kind]):
            event = entry.event
            if isinstance(event, events.DriftFound) and event.key == key:
                found = f"it changed outside Keyturn, found on {format_utc(entry.at)}"
                words = f"{found}: {event.value}"
                yield entry.at, refer_to_run(one.id, words, otherwise=found)
