"""`keyturn doctor`: check the installation and print the results."""

import json
from collections.abc import Sequence

import click

from bot.maintenance.check_installation import ComponentCheck, check_installation
from bot.maintenance.installation import Installation
from bot.model.check_result import format_results, results_to_data

EXIT_FAILED = 1


def run_doctor(
    installation: Installation, component_checks: Sequence[ComponentCheck], *, as_json: bool
) -> int:
    """Print every result, and return the exit status: 1 if there is an error."""
    results = list(check_installation(installation, component_checks))
    text = (
        json.dumps(results_to_data(results), indent=2, ensure_ascii=False)
        if as_json
        else format_results(results)
    )
    # Messages of other programs may contain secrets.
    click.echo(installation.redactor.redact_text(text))
    return EXIT_FAILED if any(each.level == "error" for each in results) else 0
