"""The lasting values that changes set: their names, and how they are written."""

from collections.abc import Mapping, Sequence

from bot.model.run import Run
from runbooks import AnyRunbook

_MAX_TEXT = 300


def get_key_name(runbooks: Mapping[str, type[AnyRunbook]], run: Run) -> str:
    """Return the name of the key that a run sets; "" if it sets none."""
    runbook = runbooks.get(run.runbook)
    if runbook is None or not runbook.sets or run.kind != "change" or run.timing or run.hosts:
        return ""
    try:
        return runbook.model_validate(run.values).key_name
    except ValueError:
        # The runbook has other fields by now.
        return ""


def join_values(values: Sequence[str]) -> str:
    """Return values of steps as one text, each once."""
    return "; ".join(dict.fromkeys(filter(None, values)))[:_MAX_TEXT]
