"""`keyturn delegate` and `keyturn grants`: who decides in whose stead, and what is granted."""

import json
import time

import click

from bot.cli.client import as_json, as_told, print_result
from bot.cli.context import Number, Place, at_place
from bot.cli.sections import Family
from bot.cli.stop import working


@click.group("delegate", cls=Family)
def delegate() -> None:
    """Let people decide in the stead of owners, for a while."""


@delegate.command("to")
@click.argument("person")
@click.option("--as", "owner", required=True, help="The owner in whose stead PERSON decides.")
@click.option("--until", required=True, help='Such as "tomorrow 18:00" or "3 days"; UTC.')
@click.option("--area", default="", help="One area; every area of the owner's if left out.")
@click.option("--why", default="", help="What the change log shall say about it.")
@as_json
@at_place
def to(
    place: Place, *, person: str, owner: str, until: str, area: str, why: str, as_json: bool
) -> None:
    """Let PERSON decide in an owner's stead.

    For example: keyturn delegate to ada --as olga --until "3 days" --area edge
    """
    from bot.model.times import format_deadline, parse_deadline

    with working(place) as workflow:
        ends = parse_deadline(until, now=round(time.time() * 1_000_000))
        made = workflow.mandates.delegate(
            person=owner, to=person, ends=ends, area=area, reason=why, door="cli"
        )
    where = made.area or "every area of theirs"
    said = f"{made.id}: {person} decides for {owner} in {where} until {format_deadline(made.ends)}"
    print_result(as_told(made), [said], as_json=as_json)


@delegate.command("list")
@as_json
@at_place
def list_delegations(place: Place, *, as_json: bool) -> None:
    """List who decides in whose stead now."""
    from bot.db import delegations
    from bot.model.times import format_deadline

    with place.database() as database, database.reading() as tx:
        found = delegations.list_active_delegations(tx)
    if as_json:
        click.echo(json.dumps([as_told(one) for one in found], ensure_ascii=False))
        return
    for one in found:
        where = one.area or "every area of theirs"
        click.echo(
            f"{one.id}: {one.delegate} for {one.delegator} in {where} "
            f"until {format_deadline(one.ends)}"
        )
    if not found:
        click.echo("nobody decides in anybody's stead")


@delegate.command("end")
@click.argument("number", type=Number())
@as_json
@at_place
def end_delegation(place: Place, *, number: int, as_json: bool) -> None:
    """End a delegation at once."""
    with working(place) as workflow:
        workflow.mandates.end_delegation(number, person="", door="cli")
    print_result(
        {"id": number, "holds": False}, [f"delegation {number} has ended"], as_json=as_json
    )


@click.group("grants", cls=Family)
def grants() -> None:
    """Look at standing grants, and end them. Owners give them in chat and on the web."""


@grants.command("list")
@as_json
@at_place
def list_grants(place: Place, *, as_json: bool) -> None:
    """List what may be done now without an approval each time."""
    from bot.db import grants as store
    from bot.model.times import format_deadline
    from bot.workflow.grant_rules import count_uses_left

    with place.database() as database, database.reading() as tx:
        found = [
            (one, count_uses_left(tx, one))
            for one in store.list_newest_grants(tx)
            if one.holds(tx.now)
        ]
    if as_json:
        told = [as_told(one, left=rest) for one, rest in found]
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    for one, rest in found:
        click.echo(
            f"{one.id}: {one.person} by {one.giver}: {one.what}, {rest} of {one.an_hour} left "
            f"this hour, until {format_deadline(one.ends)}"
        )
    if not found:
        click.echo("nothing is granted")


@grants.command("end")
@click.argument("number", type=Number())
@as_json
@at_place
def end_grant(place: Place, *, number: int, as_json: bool) -> None:
    """End a grant at once: what is under way stops before its next step."""
    with working(place) as workflow:
        workflow.mandates.end_grant(number, person="", door="cli")
    print_result({"id": number, "holds": False}, [f"grant {number} has ended"], as_json=as_json)


COMMANDS = (delegate, grants)
