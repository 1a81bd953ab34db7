"""What is set about hooks, and how another system is set up to tell us something."""

import json
import sys
from collections.abc import Mapping

import click

from bot.cli.client import json_option, print_result
from bot.cli.context import CommandEnvironment, exit_on_errors, pass_environment

_FORMAT_HINTS = {
    "keyturn": "signed as Standard Webhooks say",
    "alertmanager": "http_config: authorization: credentials_file: with the secret in it",
    "github": "Content type application/json, the secret, event: Deployment statuses",
}
_SETUP_HELP = """There is no file of hooks. Write one, and set KEYTURN_HOOKS to where it is:

sources:                       # who may tell Keyturn what happened elsewhere
  deploys:
    format: keyturn            # or alertmanager, or github
    secret_file: secrets/deploys   # beside this file; or secret_env: a variable
subscriptions:                 # whom Keyturn tells of its runs
  wiki:
    url: https://hooks.example.com/keyturn
    secret_file: secrets/wiki

A secret is whsec_ and base64, as this makes one: echo "whsec_$(openssl rand -base64 32)"
docs/webhooks.md says more."""


@click.command("hooks")
@json_option
@click.option("--again", metavar="NAME", default="", help="Tell NAME what was given up.")
@pass_environment
def show_webhooks(environment: CommandEnvironment, *, as_json: bool, again: str) -> None:
    """Show who may tell Keyturn of events, whom it tells of runs, and how to set that up."""
    from bot.webhooks.config import load_webhook_config, render_webhook_config

    file = environment.get_webhook_file()
    if again:
        _retry_deliveries(environment, again, as_json=as_json)
        return
    with exit_on_errors():
        found = load_webhook_config(file)
    if as_json:
        json.dump(render_webhook_config(found), sys.stdout, indent=2)
        click.echo()
        return
    if file is None:
        click.echo(_SETUP_HELP)
        return
    address = environment.get_base_url() or "http://127.0.0.1:8080"
    for source in found.sources.values():
        click.echo(f"{source.name} tells us: POST {address}/hooks/{source.name}")
        click.echo(
            f"  {source.format}: {_FORMAT_HINTS[source.format]}; {source.max_per_minute} a minute"
        )
    standing = _count_deliveries(environment)
    for one in found.subscriptions.values():
        what = ", ".join(one.events) or "what happens"
        where = ", ".join(one.areas) or "any area"
        click.echo(f"{one.name} is told: {one.url}")
        click.echo(f"  of {what} to every {' or '.join(one.kinds)} in {where}")
        waiting, dead = standing.get(one.name, (0, 0))
        if waiting:
            click.echo(f"  {waiting} wait to be told")
        if dead:
            click.echo(f"  {dead} given up: keyturn hooks --again {one.name} tells them after all")


def _count_deliveries(environment: CommandEnvironment) -> Mapping[str, tuple[int, int]]:
    from bot.webhooks import webhook_queue

    if not environment.has_database():
        return {}
    with environment.open_database() as database, database.reading() as tx:
        return webhook_queue.count_deliveries(tx)


def _retry_deliveries(
    environment: CommandEnvironment, subscription: str, *, as_json: bool
) -> None:
    from getpass import getuser

    from bot.audit import change_log
    from bot.webhooks import webhook_queue

    with environment.open_database() as database, database.transaction() as tx:
        taken = webhook_queue.retry_failed(tx, subscription)
        if taken:
            change_log.append_entry(
                tx, "deliveries retried", subscription=subscription, entries=taken, login=getuser()
            )
    said = (
        f"{subscription} is told {taken} again"
        if taken
        else f"nothing for {subscription} was given up"
    )
    print_result({"subscription": subscription, "entries": taken}, [said], as_json=as_json)
