"""`keyturn delegate` and `keyturn grants`: who decides in whose stead, and what is granted."""

import json
import time

import click

from bot.cli.client import json_option, print_result, record_to_data
from bot.cli.context import CommandEnvironment, RecordNumber, pass_environment
from bot.cli.sections import CommandGroup
from bot.cli.stop import open_workflow


@click.group("delegate", cls=CommandGroup)
def delegation_commands() -> None:
    """Let people decide in the stead of owners, for a while."""


@delegation_commands.command("to")
@click.argument("person")
@click.option("--as", "owner", required=True, help="The owner in whose stead PERSON decides.")
@click.option("--until", required=True, help='Such as "tomorrow 18:00" or "3 days"; UTC.')
@click.option("--area", default="", help="One area; every area of the owner's if left out.")
@click.option("--why", default="", help="What the change log shall say about it.")
@json_option
@pass_environment
def create_delegation(
    environment: CommandEnvironment,
    *,
    person: str,
    owner: str,
    until: str,
    area: str,
    why: str,
    as_json: bool,
) -> None:
    """Let PERSON decide in an owner's stead.

    For example: keyturn delegate to ada --as olga --until "3 days" --area edge
    """
    from bot.model.times import format_deadline, parse_deadline

    with open_workflow(environment) as workflow:
        ends = parse_deadline(until, now=round(time.time() * 1_000_000))
        made = workflow.delegations_and_grants.create_delegation(
            delegator=owner, delegate=person, ends_at=ends, area=area, reason=why, source="cli"
        )
    where = made.area or "every area of theirs"
    said = (
        f"{made.id}: {person} decides for {owner} in {where} until {format_deadline(made.ends_at)}"
    )
    print_result(record_to_data(made), [said], as_json=as_json)


@delegation_commands.command("list")
@json_option
@pass_environment
def list_delegations(environment: CommandEnvironment, *, as_json: bool) -> None:
    """List who decides in whose stead now."""
    from bot.db import delegations
    from bot.model.times import format_deadline

    with environment.open_database() as database, database.reading() as tx:
        found = delegations.list_active_delegations(tx)
    if as_json:
        click.echo(json.dumps([record_to_data(one) for one in found], ensure_ascii=False))
        return
    for one in found:
        where = one.area or "every area of theirs"
        click.echo(
            f"{one.id}: {one.delegate} for {one.delegator} in {where} "
            f"until {format_deadline(one.ends_at)}"
        )
    if not found:
        click.echo("nobody decides in anybody's stead")


@delegation_commands.command("end")
@click.argument("number", type=RecordNumber())
@json_option
@pass_environment
def end_delegation(environment: CommandEnvironment, *, number: int, as_json: bool) -> None:
    """End a delegation at once."""
    with open_workflow(environment) as workflow:
        workflow.delegations_and_grants.end_delegation(number, person="", source="cli")
    print_result(
        {"id": number, "holds": False}, [f"delegation {number} has ended"], as_json=as_json
    )


@click.group("grants", cls=CommandGroup)
def grant_commands() -> None:
    """Look at standing grants, and end them. Owners give them in chat and on the web."""


@grant_commands.command("list")
@json_option
@pass_environment
def list_grants(environment: CommandEnvironment, *, as_json: bool) -> None:
    """List what may be done now without an approval each time."""
    from bot.db import grants as store
    from bot.model.times import format_deadline
    from bot.workflow.grant_rules import count_uses_left

    with environment.open_database() as database, database.reading() as tx:
        found = [
            (one, count_uses_left(tx, one))
            for one in store.list_newest_grants(tx)
            if one.holds(tx.now)
        ]
    if as_json:
        told = [record_to_data(one, left=rest) for one, rest in found]
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    for one, rest in found:
        click.echo(
            f"{one.id}: {one.person} by {one.granted_by}: {one.what}, {rest} of {one.per_hour} "
            "left "
            f"this hour, until {format_deadline(one.ends_at)}"
        )
    if not found:
        click.echo("nothing is granted")


@grant_commands.command("end")
@click.argument("number", type=RecordNumber())
@json_option
@pass_environment
def revoke_grant(environment: CommandEnvironment, *, number: int, as_json: bool) -> None:
    """End a grant at once: what is under way stops before its next step."""
    with open_workflow(environment) as workflow:
        workflow.delegations_and_grants.revoke_grant(number, person="", source="cli")
    print_result({"id": number, "holds": False}, [f"grant {number} has ended"], as_json=as_json)


COMMANDS = (delegation_commands, grant_commands)
