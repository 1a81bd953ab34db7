"""`keyturn doctor`: what a person sees of an examination."""

import json

import click

from bot.doctor.examination import examine
from bot.doctor.patient import Patient
from bot.finding import as_data, as_text

FAILED = 1


def run(patient: Patient, *, as_json: bool) -> int:
    """Print every finding, and return the exit status."""
    found = list(examine(patient))
    said = json.dumps(as_data(found), indent=2, ensure_ascii=False) if as_json else as_text(found)
    # What other programs answered is shown as it came, but for what must never be shown.
    click.echo(patient.redactor.text(said))
    return FAILED if any(each.mark == "mend" for each in found) else 0
