"""`keyturn token …`: what programs come with to the API, made, listed and revoked."""

import json

import click

from bot.cli.client import as_json, as_told, print_result
from bot.cli.context import Number, Place, at_place
from bot.cli.sections import Family
from bot.cli.stop import working

_SCOPES = ("read", "ask", "approve", "metrics")


@click.group(cls=Family)
def token() -> None:
    """Make tokens by which programs come to the API, and revoke them."""


@token.command("new")
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
@as_json
@at_place
def new(
    place: Place, *, person: str, scopes: tuple[str, ...], days: int, name: str, as_json: bool
) -> None:
    """Make a token for a program of PERSON's, and print it: nobody can tell it again.

    For example: keyturn token new dora --scope ask --days 90 --name "the deploy pipeline"
    """
    from bot.audit.formats import to_utc
    from bot.model.times import format_iso

    with working(place) as workflow:
        made, whole = workflow.tokens.make(
            person=person, scopes=scopes, days=days, name=name, door="cli"
        )
    if as_json:
        click.echo(
            json.dumps({"id": made.id, "token": whole, "expires": format_iso(made.expires)})
        )
        return
    click.echo(whole)
    until = f"{to_utc(made.expires):%Y-%m-%d %H:%M} UTC"
    click.echo(f"token {made.id}, good until {until}; it is shown this once", err=True)


@token.command("list")
@click.argument("person", default="")
@as_json
@at_place
def listing(place: Place, *, person: str, as_json: bool) -> None:
    """List the tokens of PERSON, or of everybody."""
    from bot.audit.formats import to_utc
    from bot.auth import tokens

    with place.database() as database, database.reading() as tx:
        found, now = tokens.list_tokens(tx, person), tx.now
    if as_json:
        shown = [as_told(one, holds=one.holds(now)) for one in found]
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    for one in found:
        state = "revoked" if one.revoked else "expired" if not one.holds(now) else "good"
        used = f"used {to_utc(one.used):%Y-%m-%d}" if one.used else "never used"
        ends = f"until {to_utc(one.expires):%Y-%m-%d}"
        click.echo(
            f"{one.id:>4}  {one.prefix}…  {one.person}  {','.join(one.scopes)}  "
            f"{state}, {ends}, {used}  {one.name}"
        )
    if not found:
        click.echo("there is no token", err=True)


@token.command("revoke")
@click.argument("number", type=Number())
@as_json
@at_place
def revoke(place: Place, *, number: int, as_json: bool) -> None:
    """Let token NUMBER open nothing any more."""
    with working(place) as workflow:
        found = workflow.tokens.revoke(number, person="", door="cli")
    said = f"token {number} of {found.person} opens nothing any more"
    print_result({"id": number, "person": found.person, "holds": False}, [said], as_json=as_json)
