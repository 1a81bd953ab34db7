"""`keyturn delegate` and `keyturn grants`: delegations and standing grants."""

import json
import time

import click

from bot.cli.client import print_result, record_to_data
from bot.cli.context import CommandEnvironment, RecordNumber, pass_environment
from bot.cli.offline import open_service
from bot.cli.options import json_option, reason_option
from bot.cli.sections import CommandGroup


@click.group("delegate", cls=CommandGroup)
def delegation_commands() -> None:
    """Manage delegations: people who decide on behalf of owners."""


@delegation_commands.command("to")
@click.argument("person")
@click.option("--as", "owner", required=True, help="The owner on whose behalf PERSON decides.")
@click.option("--until", required=True, help='"tomorrow 18:00" or "3 days"; UTC.')
@click.option("--area", default="", help="One area. Default: every area of the owner.")
@reason_option()
@json_option
@pass_environment
def create_delegation(
    environment: CommandEnvironment,
    *,
    person: str,
    owner: str,
    until: str,
    area: str,
    reason: str,
    as_json: bool,
) -> None:
    """Let PERSON decide on behalf of an owner.

    For example: keyturn delegate to ada --as olga --until "3 days" --area edge
    """
    from bot.model.times import format_deadline, parse_deadline

    with open_service(environment) as service:
        ends = parse_deadline(until, now=round(time.time() * 1_000_000))
        delegation = service.delegations_and_grants.create_delegation(
            delegator=owner, delegate=person, ends_at=ends, area=area, reason=reason, source="cli"
        )
    area_name = delegation.area or "all their areas"
    until_time = format_deadline(delegation.ends_at)
    line = f"{delegation.id}: {person} decides for {owner} in {area_name} until {until_time}"
    print_result(record_to_data(delegation), [line], as_json=as_json)


@delegation_commands.command("list")
@json_option
@pass_environment
def list_delegations(environment: CommandEnvironment, *, as_json: bool) -> None:
    """List active delegations."""
    from bot.db import delegations
    from bot.model.times import format_deadline

    with environment.open_database() as database, database.reading() as tx:
        found = delegations.list_active_delegations(tx)
    if as_json:
        click.echo(json.dumps([record_to_data(one) for one in found], ensure_ascii=False))
        return
    for one in found:
        area = one.area or "all their areas"
        click.echo(
            f"{one.id}: {one.delegate} for {one.delegator} in {area} "
            f"until {format_deadline(one.ends_at)}"
        )
    if not found:
        click.echo("No delegations.")


@delegation_commands.command("end")
@click.argument("number", type=RecordNumber())
@json_option
@pass_environment
def end_delegation(environment: CommandEnvironment, *, number: int, as_json: bool) -> None:
    """End delegation NUMBER immediately.

    For example: keyturn delegate end 3
    """
    with open_service(environment) as service:
        service.delegations_and_grants.end_delegation(number, person="", source="cli")
    print_result({"id": number, "active": False}, [f"Ended delegation {number}."], as_json=as_json)


@click.group("grants", cls=CommandGroup)
def grant_commands() -> None:
    """List and revoke standing grants. Owners create them in chat and on the web."""


@grant_commands.command("list")
@json_option
@pass_environment
def list_grants(environment: CommandEnvironment, *, as_json: bool) -> None:
    """List active standing grants."""
    from bot.db import grants as store
    from bot.db.grants import count_uses_left
    from bot.model.times import format_deadline

    with environment.open_database() as database, database.reading() as tx:
        found = [
            (one, count_uses_left(tx, one))
            for one in store.list_newest_grants(tx)
            if one.holds(tx.now)
        ]
    if as_json:
        data = [record_to_data(one, uses_left=left) for one, left in found]
        click.echo(json.dumps(data, ensure_ascii=False))
        return
    for one, left in found:
        click.echo(
            f"{one.id}: {one.person} by {one.granted_by}: {one.what}, {left} of {one.per_hour} "
            "left "
            f"this hour, until {format_deadline(one.ends_at)}"
        )
    if not found:
        click.echo("No standing grants.")


@grant_commands.command("end")
@click.argument("number", type=RecordNumber())
@json_option
@pass_environment
def revoke_grant(environment: CommandEnvironment, *, number: int, as_json: bool) -> None:
    """Revoke grant NUMBER immediately; its runs stop before their next step.

    For example: keyturn grants end 3
    """
    with open_service(environment) as service:
        service.delegations_and_grants.revoke_grant(number, person="", source="cli")
    print_result({"id": number, "active": False}, [f"Revoked grant {number}."], as_json=as_json)


COMMANDS = (delegation_commands, grant_commands)
