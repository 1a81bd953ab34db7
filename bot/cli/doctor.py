"""`keyturn doctor`: what a person sees of an examination."""

import json

import click

from bot.maintenance.check_installation import check_installation
from bot.maintenance.installation import Installation
from bot.model.check_result import format_results, results_to_data

__all__ = ["Installation", "check_installation"]


FAILED = 1


def run_doctor(patient: Installation, *, as_json: bool) -> int:
    """Print every finding, and return the exit status."""
    found = list(check_installation(patient))
    said = (
        json.dumps(results_to_data(found), indent=2, ensure_ascii=False)
        if as_json
        else format_results(found)
    )
    # What other programs answered is shown as it came, but for what must never be shown.
    click.echo(patient.redactor.text(said))
    return FAILED if any(each.mark == "mend" for each in found) else 0
