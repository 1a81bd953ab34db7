"""`keyturn serve`, `worker`, `doctor` and `manifest`: start and check a server."""

import json
import sys
from collections.abc import Sequence

import click

from bot.cli.context import FAILED, exit_on_errors, wants_json
from bot.cli.environment import (
    check_own_runbooks,
    read_installation,
    read_server_settings,
    read_settings,
)
from bot.cli.options import json_option
from bot.features import load_checks
from bot.slack.aliases import ALIASES


@click.command()
def serve() -> None:
    """Run the server: chat, web pages, API and execution."""
    settings = read_server_settings()
    check_own_runbooks(settings)
    from bot import app

    with exit_on_errors():
        app.serve(settings)


@click.command()
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


@click.command()
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


@click.command()
@click.option(
    "--http",
    default="",
    metavar="ADDRESS",
    help="Use HTTP instead of Socket Mode: your https:// address.",
)
@click.option(
    "--find-lost",
    is_flag=True,
    help="Let Keyturn search its channels for a card whose response was lost.",
)
@click.option(
    "--alerts",
    is_flag=True,
    help="Have Slack send Keyturn the messages of its channels, to answer alerts.",
)
@click.option(
    "--command",
    "commands",
    multiple=True,
    type=click.Choice(sorted(ALIASES)),
    help="Add a slash command for a frequent task. Repeat for several.",
)
def manifest(*, http: str, find_lost: bool, alerts: bool, commands: Sequence[str]) -> None:
    """Print the Slack app manifest, for Socket Mode or HTTP.

    With KEYTURN_BASE_URL, links to runs show the run in Slack.

    For example: keyturn manifest --http https://keyturn.example.com
    """
    from bot.slack.manifest import format_manifest

    with exit_on_errors():
        base_url = read_settings().base_url
        text = format_manifest(
            http, base_url, find_lost=find_lost, alerts=alerts, commands=commands
        )
        click.echo(text, nl=False)
