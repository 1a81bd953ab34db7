"""`keyturn token …`: what programs come with to the API, made, listed and revoked."""

import json

import click

from bot.cli.client import json_option, print_result, record_to_data
from bot.cli.context import CommandEnvironment, RecordNumber, pass_environment
from bot.cli.sections import CommandGroup
from bot.cli.stop import open_workflow

_SCOPES = ("read", "ask", "approve", "metrics")


@click.group("token", cls=CommandGroup)
def token_commands() -> None:
    """Make tokens by which programs come to the API, and revoke them."""


@token_commands.command("new")
@click.argument("person")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(_SCOPES),
    help="What it is for; may be given several times. ask and approve let it read, too.",
)
@click.option("--days", default=30, show_default=True, help="For how long it is good.")
@click.option("--name", default="", help='What it is for, such as "the deploy pipeline".')
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
    """Make a token for a program of PERSON's, and print it: nobody can tell it again.

    For example: keyturn token new dora --scope ask --days 90 --name "the deploy pipeline"
    """
    from bot.audit.formats import to_datetime
    from bot.model.times import format_iso

    with open_workflow(environment) as workflow:
        made, whole = workflow.tokens.create_token(
            person=person, scopes=scopes, days=days, name=name, source="cli"
        )
    if as_json:
        click.echo(
            json.dumps({"id": made.id, "token": whole, "expires": format_iso(made.expires_at)})
        )
        return
    click.echo(whole)
    until = f"{to_datetime(made.expires_at):%Y-%m-%d %H:%M} UTC"
    click.echo(f"token {made.id}, good until {until}; it is shown this once", err=True)


@token_commands.command("list")
@click.argument("person", default="")
@json_option
@pass_environment
def list_all_tokens(environment: CommandEnvironment, *, person: str, as_json: bool) -> None:
    """List the tokens of PERSON, or of everybody."""
    from bot.audit.formats import to_datetime
    from bot.auth import tokens

    with environment.open_database() as database, database.reading() as tx:
        found, now = tokens.list_tokens(tx, person), tx.now
    if as_json:
        shown = [record_to_data(one, holds=one.is_active(now)) for one in found]
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    for one in found:
        state = "revoked" if one.revoked_at else "expired" if not one.is_active(now) else "good"
        used = (
            f"used {to_datetime(one.last_used_at):%Y-%m-%d}" if one.last_used_at else "never used"
        )
        ends = f"until {to_datetime(one.expires_at):%Y-%m-%d}"
        click.echo(
            f"{one.id:>4}  {one.prefix}…  {one.person}  {','.join(one.scopes)}  "
            f"{state}, {ends}, {used}  {one.name}"
        )
    if not found:
        click.echo("there is no token", err=True)


@token_commands.command("revoke")
@click.argument("number", type=RecordNumber())
@json_option
@pass_environment
def revoke_token(environment: CommandEnvironment, *, number: int, as_json: bool) -> None:
    """Let token NUMBER open nothing any more."""
    with open_workflow(environment) as workflow:
        found = workflow.tokens.revoke_token(number, person="", source="cli")
    said = f"token {number} of {found.person} opens nothing any more"
    print_result({"id": number, "person": found.person, "holds": False}, [said], as_json=as_json)
