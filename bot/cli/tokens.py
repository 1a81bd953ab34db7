"""`keyturn token …`: create, list and revoke API tokens."""

import json

import click

from bot.cli.client import print_result, record_to_data
from bot.cli.context import CommandEnvironment, RecordNumber, pass_environment
from bot.cli.offline import open_service
from bot.cli.options import json_option
from bot.cli.sections import CommandGroup

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
    from bot.audit.formats import to_datetime
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
    until = f"{to_datetime(token.expires_at):%Y-%m-%d %H:%M} UTC"
    click.echo(f"Token {token.id}, valid until {until}. It is not shown again.", err=True)


@token_commands.command("list")
@click.argument("person", default="")
@json_option
@pass_environment
def list_all_tokens(environment: CommandEnvironment, *, person: str, as_json: bool) -> None:
    """List the tokens of PERSON, or of everyone."""
    from bot.audit.formats import to_datetime
    from bot.auth import tokens

    with environment.open_database() as database, database.reading() as tx:
        found, now = tokens.list_tokens(tx, person), tx.now
    if as_json:
        shown = [record_to_data(one, active=one.is_active(now)) for one in found]
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    for one in found:
        state = "revoked" if one.revoked_at else "expired" if not one.is_active(now) else "active"
        used = (
            f"used {to_datetime(one.last_used_at):%Y-%m-%d}" if one.last_used_at else "never used"
        )
        ends = f"until {to_datetime(one.expires_at):%Y-%m-%d}"
        click.echo(
            f"{one.id:>4}  {one.prefix}…  {one.person}  {','.join(one.scopes)}  "
            f"{state}, {ends}, {used}  {one.name}"
        )
    if not found:
        click.echo("No tokens.", err=True)


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
