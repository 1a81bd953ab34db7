"""`keyturn token …`: create, list and revoke API tokens."""

import json

import click

from bot.cli.client import print_result, record_to_data
from bot.cli.context import CommandEnvironment, RecordNumber, pass_environment
from bot.cli.offline import open_service
from bot.cli.options import json_option
from bot.cli.sections import CommandGroup
from bot.cli.terminal import format_stored_time, print_table, time_options

_SCOPES = ("read", "request", "approve", "metrics")


@click.group("token", cls=CommandGroup)
def token_commands() -> None:
    """Manage API tokens."""


@token_commands.command("new")
@click.argument("person")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(_SCOPES),
    help="What the token allows; repeatable. request and approve include read.",
)
@click.option("--days", default=30, show_default=True, help="Days until it expires.")
@click.option("--name", default="", help='Its use, such as "the deploy pipeline".')
@time_options
@json_option
@pass_environment
def create_token(
    environment: CommandEnvironment,
    *,
    person: str,
    scopes: tuple[str, ...],
    days: int,
    name: str,
    as_json: bool,
) -> None:
    """Create an API token of PERSON, and print it once.

    For example: keyturn token new dora --scope request --days 90 --name "the deploy pipeline"
    """
    from bot.model.times import format_iso

    with open_service(environment) as service:
        token, secret = service.tokens.create_token(
            person=person, scopes=scopes, days=days, name=name, source="cli"
        )
    if as_json:
        click.echo(
            json.dumps(
                {"id": token.id, "token": secret, "expires_at": format_iso(token.expires_at)}
            )
        )
        return
    click.echo(secret)
    until = format_stored_time(token.expires_at)
    click.echo(f"Token {token.id}, valid until {until}. It is not shown again.", err=True)


@token_commands.command("list")
@click.argument("person", default="")
@time_options
@json_option
@pass_environment
def list_all_tokens(environment: CommandEnvironment, *, person: str, as_json: bool) -> None:
    """List the tokens of PERSON, or of everyone."""
    from bot.auth import tokens

    with environment.open_database() as database, database.reading() as tx:
        found, now = tokens.list_tokens(tx, person), tx.now
    rows = [
        (
            str(one.id),
            f"{one.prefix}…",
            one.person,
            ",".join(one.scopes),
            "revoked" if one.revoked_at else "active" if one.is_active(now) else "expired",
            format_stored_time(one.expires_at),
            format_stored_time(one.last_used_at) if one.last_used_at else "never",
            one.name,
        )
        for one in found
    ]
    data = [record_to_data(one, active=one.is_active(now)) for one in found]
    headings = ("ID", "TOKEN", "PERSON", "SCOPES", "STATE", "EXPIRES", "LAST USED", "NAME")
    print_table(data, headings, rows, as_json=as_json, empty_message="No tokens.")


@token_commands.command("revoke")
@click.argument("number", type=RecordNumber())
@json_option
@pass_environment
def revoke_token(environment: CommandEnvironment, *, number: int, as_json: bool) -> None:
    """Revoke token NUMBER.

    For example: keyturn token revoke 3
    """
    with open_service(environment) as service:
        found = service.tokens.revoke_token(number, person="", source="cli")
    line = f"Revoked token {number} of {found.person}."
    print_result({"id": number, "person": found.person, "active": False}, [line], as_json=as_json)
