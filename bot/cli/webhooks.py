"""What is set about hooks, and how another system is set up to tell us something."""

import json
import sys
from collections.abc import Mapping

import click

from bot.cli.client import as_json, print_result
from bot.cli.context import Place, at_place, plainly

_FORMATS = {
    "keyturn": "signed as Standard Webhooks say",
    "alertmanager": "http_config: authorization: credentials_file: with the secret in it",
    "github": "Content type application/json, the secret, event: Deployment statuses",
}
_NONE = """There is no file of hooks. Write one, and set KEYTURN_HOOKS to where it is:

sources:                       # who may tell Keyturn what happened elsewhere
  deploys:
    format: keyturn            # or alertmanager, or github
    secret_file: secrets/deploys   # beside this file; or secret_env: a variable
subscriptions:                 # whom Keyturn tells of its runs
  wiki:
    url: https://hooks.example.com/keyturn
    secret_file: secrets/wiki

A secret is whsec_ and base64, as this makes one: echo "whsec_$(openssl rand -base64 32)"
docs/hooks.md says more."""


@click.command("hooks")
@as_json
@click.option("--again", metavar="NAME", default="", help="Tell NAME what was given up.")
@at_place
def hooks(place: Place, *, as_json: bool, again: str) -> None:
    """Show who may tell Keyturn of events, whom it tells of runs, and how to set that up."""
    from bot.webhooks.config import load_webhook_config, webhook_config_to_log

    file = place.hooks()
    if again:
        _again(place, again, as_json=as_json)
        return
    with plainly():
        found = load_webhook_config(file)
    if as_json:
        json.dump(webhook_config_to_log(found), sys.stdout, indent=2)
        click.echo()
        return
    if file is None:
        click.echo(_NONE)
        return
    address = place.address() or "http://127.0.0.1:8080"
    for source in found.sources.values():
        click.echo(f"{source.name} tells us: POST {address}/hooks/{source.name}")
        click.echo(f"  {source.format}: {_FORMATS[source.format]}; {source.a_minute} a minute")
    standing = _standing(place)
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


def _standing(place: Place) -> Mapping[str, tuple[int, int]]:
    from bot.webhooks import webhook_queue

    if not place.has_database():
        return {}
    with place.database() as database, database.reading() as tx:
        return webhook_queue.count_deliveries(tx)


def _again(place: Place, name: str, *, as_json: bool) -> None:
    from getpass import getuser

    from bot.audit import change_log
    from bot.webhooks import webhook_queue

    with place.database() as database, database.transaction() as tx:
        taken = webhook_queue.retry_failed(tx, name)
        if taken:
            change_log.append_entry(
                tx, "told again", subscription=name, entries=taken, login=getuser()
            )
    said = f"{name} is told {taken} again" if taken else f"nothing for {name} was given up"
    print_result({"subscription": name, "entries": taken}, [said], as_json=as_json)
