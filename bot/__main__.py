"""The command line: `keyturn …`."""

import json
import sys
from dataclasses import replace
from importlib.metadata import version

import click

from bot.cli.access import agent_commands, factor_commands, token_commands
from bot.cli.changelog import COMMANDS as CHANGELOG
from bot.cli.context import FAILED, exit_on_errors, wants_json
from bot.cli.database import COMMANDS as DATABASE
from bot.cli.decisions import COMMANDS as DECISIONS
from bot.cli.delegations import COMMANDS as DELEGATIONS
from bot.cli.environment import (
    ENVIRONMENT,
    check_own_runbooks,
    read_installation,
    read_server_settings,
    read_settings,
)
from bot.cli.history import COMMANDS as HISTORY
from bot.cli.hosts import COMMANDS as HOSTS
from bot.cli.inventory import inventory_commands, print_host_files, print_sudoers
from bot.cli.options import json_option
from bot.cli.own_runbooks import runbook_commands
from bot.cli.policy import policy_commands
from bot.cli.runs import COMMANDS as RUNS
from bot.cli.sections import EXIT_STATUS_HELP, CommandGroup, KeyturnCommand
from bot.cli.setup import COMMANDS as SETUP
from bot.cli.signing import print_signing_page, sign_plan
from bot.cli.stop import COMMANDS as STOPS
from bot.cli.terminal import is_quiet
from bot.features import load_checks, load_commands, load_hooks

# Slow modules are imported by the command that needs them, so that `keyturn --help` is fast.


@click.group(
    cls=KeyturnCommand,
    epilog=EXIT_STATUS_HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "obj": replace(ENVIRONMENT, load_hooks=load_hooks),
    },
)
@click.version_option(version("keyturn"), prog_name="keyturn")
def main() -> None:
    """Audited runbooks with approvals.

    Settings come from the environment (KEYTURN_…) and the file .env.
    """
    if is_quiet():
        click.get_current_context().color = False


@main.command()
def serve() -> None:
    """Run the server: chat, web pages, API and execution."""
    settings = read_server_settings()
    check_own_runbooks(settings)
    from bot import app

    with exit_on_errors():
        app.serve(settings)


@main.command()
@click.option(
    "--site", "sites", multiple=True, required=True, help="Site of the inventory; repeatable."
)
@click.option(
    "--concurrency", type=click.IntRange(1, 200), default=8, help="Parallel changes. Default: 8."
)
def worker(*, sites: tuple[str, ...], concurrency: int) -> None:
    """Run a worker that executes runs on the hosts of a site.

    Needs KEYTURN_ENGINE=distributed. Any number of workers and of servers may run; the servers
    receive requests and run schedules.

    For example: keyturn worker --site ams --site rot
    """
    from bot import worker as bot_worker

    settings = read_server_settings()
    check_own_runbooks(settings)
    with exit_on_errors():
        bot_worker.run_worker(settings, sites=sites, concurrency=concurrency)


@main.command()
@json_option
def doctor() -> None:
    """Check the installation, and print a fix for each problem.

    Checks the policy, keys, database, change log, witness, web pages, Slack and every host.
    Changes nothing. Exit status 1 if there is an error.
    """
    installation = read_installation()
    from bot.maintenance.check_installation import check_installation
    from bot.model.check_result import format_results, results_to_data
    from bot.slack.health import check_slack
    from bot.web.health import check_pages

    components = [check_pages, check_slack]
    results = list(check_installation(installation, components, load_checks()))
    data = json.dumps(results_to_data(results), indent=2, ensure_ascii=False)
    # Messages of other programs may contain secrets.
    click.echo(
        installation.redactor.redact_text(data if wants_json() else format_results(results))
    )
    sys.exit(FAILED if any(each.level == "error" for each in results) else 0)


@main.command()
@click.option(
    "--http",
    default="",
    metavar="ADDRESS",
    help="Use HTTP instead of Socket Mode: your https:// address.",
)
def manifest(*, http: str) -> None:
    """Print the Slack app manifest, for Socket Mode or HTTP.

    With KEYTURN_BASE_URL, links to runs show the run in Slack.

    For example: keyturn manifest --http https://keyturn.example.com
    """
    from bot.slack.manifest import format_manifest

    with exit_on_errors():
        click.echo(format_manifest(http, read_settings().base_url), nl=False)


@main.group(cls=CommandGroup)
def changelog() -> None:
    """Search, verify and export the change log."""


for command in CHANGELOG:
    changelog.add_command(command)
for command in (
    *DATABASE,
    policy_commands,
    factor_commands,
    token_commands,
    agent_commands,
    runbook_commands,
    *SETUP,
    *DELEGATIONS,
    *STOPS,
    *RUNS,
    *DECISIONS,
    print_signing_page,
    sign_plan,
    *HISTORY,
    *HOSTS,
    inventory_commands,
    print_host_files,
    print_sudoers,
):
    main.add_command(command)
for added in load_commands():
    main.add_feature(added)


if __name__ == "__main__":
    main()
