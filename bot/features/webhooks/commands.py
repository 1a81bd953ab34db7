"""`keyturn webhooks`: configured webhooks, and how to set them up."""

from collections.abc import Mapping

import click

from bot.cli.context import CommandEnvironment, exit_on_errors, wants_json
from bot.cli.options import option_with_aliases, pass_environment
from bot.cli.terminal import print_json, print_result

_FORMAT_HINTS = {
    "keyturn": "signed by Standard Webhooks",
    "alertmanager": "http_config: authorization: credentials_file: a file with the secret",
    "github": "content type application/json, the secret, event Deployment statuses",
}
_DELIVERY_FORMATS = {
    "keyturn": "",
    "cloudevents": ", as CloudEvents",
    "grafana": ", as annotations of Grafana",
}
_SETUP_HELP = """No webhooks are configured. Create a file, and set KEYTURN_HOOKS to its path:

sources:                       # systems that send events to Keyturn
  deploys:
    format: keyturn            # or alertmanager, or github
    secret_file: secrets/deploys   # relative to this file; or secret_env: a variable
subscriptions:                 # systems that receive events of runs
  wiki:
    url: https://hooks.example.com/keyturn
    secret_file: secrets/wiki

Create a secret with: echo "whsec_$(openssl rand -base64 32)"
docs/webhooks.md says more."""


@click.command("webhooks")
@option_with_aliases(
    "--retry",
    "--again",
    "subscription",
    metavar="NAME",
    default="",
    help="Send the failed deliveries of NAME again.",
)
@pass_environment
def show_webhooks(environment: CommandEnvironment, *, subscription: str) -> None:
    """Show incoming and outgoing webhooks, and how to set them up."""
    from bot.features.webhooks.config import load_webhook_config, render_webhook_config

    file = environment.settings.hooks
    if subscription:
        _retry_deliveries(environment, subscription)
        return
    with exit_on_errors():
        config = load_webhook_config(file)
    if wants_json():
        print_json(render_webhook_config(config), indent=2)
        return
    if file is None:
        click.echo(_SETUP_HELP)
        return
    address = environment.base_url or "http://127.0.0.1:8080"
    for source in config.sources.values():
        click.echo(f"{source.name} (incoming): POST {address}/hooks/{source.name}")
        limit = f"at most {source.max_per_minute} per minute"
        click.echo(f"  {source.format}: {_FORMAT_HINTS[source.format]}; {limit}")
    counts = _count_deliveries(environment)
    for one in config.subscriptions.values():
        events = ", ".join(one.events) or "all events"
        areas = ", ".join(one.areas) or "all areas"
        click.echo(f"{one.name} (outgoing): {one.url}")
        form = _DELIVERY_FORMATS[one.format]
        click.echo(f"  {events} of each {' or '.join(one.kinds)} in {areas}{form}")
        pending, failed = counts.get(one.name, (0, 0))
        if pending:
            click.echo(f"  {pending} pending")
        if failed:
            click.echo(f"  {failed} failed. To send again: keyturn webhooks --retry {one.name}")


def _count_deliveries(environment: CommandEnvironment) -> Mapping[str, tuple[int, int]]:
    from bot.integrations import webhook_queue

    if not environment.has_database():
        return {}
    with environment.open_database() as database, database.reading() as tx:
        return webhook_queue.count_deliveries(tx)


def _retry_deliveries(environment: CommandEnvironment, subscription: str) -> None:
    from getpass import getuser

    from bot.audit import change_log, events
    from bot.integrations import webhook_queue

    with environment.open_database() as database, database.transaction() as tx:
        entries = webhook_queue.retry_failed(tx, subscription)
        if entries:
            change_log.append_entry(
                tx,
                events.DeliveriesRetried(
                    subscription=subscription, entries=entries, login=getuser()
                ),
            )
    line = (
        f"Sending {entries} deliveries to {subscription} again."
        if entries
        else f"{subscription} has no failed deliveries."
    )
    print_result({"subscription": subscription, "entries": entries}, [line])
