"""`keyturn doctor`: check the installation and print the results."""

import json
from collections.abc import Sequence

import click

from bot.maintenance.check_installation import DoorCheck, check_installation
from bot.maintenance.installation import Installation
from bot.model.check_result import format_results, results_to_data

EXIT_FAILED = 1


def run_doctor(
    installation: Installation, source_checks: Sequence[DoorCheck], *, as_json: bool
) -> int:
    """Print every result, and return the exit status: 1 if there is an error."""
    found = list(check_installation(installation, source_checks))
    said = (
        json.dumps(results_to_data(found), indent=2, ensure_ascii=False)
        if as_json
        else format_results(found)
    )
    # Answers of other programs are printed as they came, without the secrets known here.
    click.echo(installation.redactor.redact_text(said))
    return EXIT_FAILED if any(each.level == "error" for each in found) else 0
