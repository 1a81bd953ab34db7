"""The command line: `keyturn …`."""

import sys
from importlib.metadata import version

import click

from bot.cli.audit_log import export, show
from bot.cli.backup import backup, copy, restore
from bot.cli.client import as_json
from bot.cli.context import plainly
from bot.cli.db import db
from bot.cli.delegations import COMMANDS as DELEGATIONS
from bot.cli.environment import (
    PLACE,
    check_own_runbooks,
    read_installation,
    read_server_settings,
    read_settings,
)
from bot.cli.history import COMMANDS as HISTORY
from bot.cli.hosts import COMMANDS as HOSTS
from bot.cli.inventory import inventory, sudoers
from bot.cli.log_admin import acknowledge, erase, rotate_key
from bot.cli.policy import policy
from bot.cli.runs import COMMANDS as RUNS
from bot.cli.schedules import schedule
from bot.cli.second_factors import factors
from bot.cli.sections import STATUS, Family, Keyturn
from bot.cli.setup import COMMANDS as SETUP
from bot.cli.stop import COMMANDS as STOPS
from bot.cli.tokens import token
from bot.cli.verify import verify
from bot.cli.wait_report import report
from bot.cli.webhooks import hooks

# Heavy modules are loaded by the command that needs them: `keyturn --help` answers at once.


@click.group(
    cls=Keyturn,
    epilog=STATUS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "obj": lambda: read_settings().policy,
    },
)
@click.version_option(version("keyturn"), prog_name="keyturn")
def main() -> None:
    """Two keys for production: audited runbooks, asked and approved in chat.

    Settings are read from the environment (KEYTURN_…) and from the file .env.
    """


@main.command()
def serve() -> None:
    """Serve chat and web pages, and carry runs out, until interrupted."""
    settings = read_server_settings()
    check_own_runbooks(settings)
    from bot import app

    with plainly():
        app.serve(settings)


@main.command()
@click.option("--site", "sites", multiple=True, required=True, help="As in the inventory.")
@click.option(
    "--concurrency", type=click.IntRange(1, 200), default=8, help="Changes at once; 8 if left out."
)
def worker(*, sites: tuple[str, ...], concurrency: int) -> None:
    """Carry out what is asked for the hosts of a site, until interrupted. Any number may.

    With KEYTURN_ENGINE=distributed; keyturn serve, also any number, is asked and keeps the time.
    --site may be given several times.

    For example: keyturn worker --site ams --site rot
    """
    from bot import worker as bot_worker

    settings = read_server_settings()
    check_own_runbooks(settings)
    with plainly():
        bot_worker.run_worker(settings, sites=sites, concurrency=concurrency)


@main.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """Check the whole installation, and say what to do about each problem. Changes nothing.

    Policy, keys, database, change log, witness, pages, Slack, and each host. Exit status 1 if
    there is an error.
    """
    patient = read_installation()
    from bot.cli.doctor import run_doctor
    from bot.slack.health import check_slack
    from bot.web.health import check_pages

    sys.exit(run_doctor(patient, [check_pages, check_slack], as_json=as_json))


@main.command()
@click.option("--http", default="", metavar="ADDRESS", help="For HTTP: Keyturn's own, https://…")
def manifest(*, http: str) -> None:
    """Print the manifest from which Slack makes the app: for Socket Mode, or for HTTP."""
    from bot.slack.manifest import format_manifest

    with plainly():
        click.echo(format_manifest(http), nl=False)


@main.group(cls=Family)
def changelog() -> None:
    """Read and verify the change log."""


for command in (show, export, verify, rotate_key, erase, acknowledge):
    command.context_settings["obj"] = PLACE
    changelog.add_command(command)
db.add_command(copy)
for command in (
    backup,
    restore,
    db,
    policy,
    schedule,
    factors,
    hooks,
    token,
    *SETUP,
    *DELEGATIONS,
    *STOPS,
    *RUNS,
    *HISTORY,
    *HOSTS,
):
    command.context_settings["obj"] = PLACE
    main.add_command(command)
for command in (Family.of(inventory), sudoers, report):
    main.add_command(command)


if __name__ == "__main__":
    main()
