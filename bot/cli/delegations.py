"""`keyturn delegate` and `keyturn grants`: delegations and standing grants."""

import shlex
import time
from typing import Any

import click

from bot.cli.client import record_to_data
from bot.cli.context import CommandEnvironment, RecordNumber, open_service
from bot.cli.options import (
    acting_person_option,
    create_acting_person_option,
    pass_environment,
    reason_option,
)
from bot.cli.sections import CommandGroup
from bot.cli.terminal import (
    format_stored_time,
    get_zone_name,
    print_result,
    print_table,
    time_options,
)


@click.group("delegate", cls=CommandGroup)
def delegation_commands() -> None:
    """Manage delegations: people who decide on behalf of owners."""


@delegation_commands.command("to")
@click.argument("person")
@create_acting_person_option("owner")
@click.option("--until", required=True, help='"tomorrow 18:00" or "3 days".')
@click.option("--area", default="", help="One area. Default: every area of the owner.")
@reason_option()
@time_options
@pass_environment
def create_delegation(
    environment: CommandEnvironment, *, person: str, owner: str, until: str, area: str, reason: str
) -> None:
    """Let PERSON decide on your behalf; you own an area.

    For example: keyturn delegate to ada --as olga --until "3 days" --area edge
    """
    from bot.model.times import parse_deadline

    with open_service(environment, owner) as service:
        ends = parse_deadline(until, now=round(time.time() * 1_000_000), zone=get_zone_name())
        delegation = service.delegations.create_delegation(
            delegator=owner, delegate=person, ends_at=ends, area=area, reason=reason, source="cli"
        )
    area_name = delegation.area or "all their areas"
    until_time = format_stored_time(delegation.ends_at)
    line = f"{delegation.id}: {person} decides for {owner} in {area_name} until {until_time}"
    print_result(record_to_data(delegation), [line])


@delegation_commands.command("list")
@time_options
@pass_environment
def list_delegations(environment: CommandEnvironment) -> None:
    """List active delegations."""
    from bot.db import delegations

    with environment.open_database() as database, database.reading() as tx:
        found = delegations.list_active_delegations(tx)
    rows = [
        (
            str(one.id),
            one.delegate,
            one.delegator,
            one.area or "all their areas",
            format_stored_time(one.ends_at),
        )
        for one in found
    ]
    data = [record_to_data(one) for one in found]
    headings = ("ID", "DELEGATE", "ON BEHALF OF", "AREA", "UNTIL")
    print_table(data, headings, rows, empty_message="No delegations.")


@delegation_commands.command("end")
@click.argument("number", type=RecordNumber())
@pass_environment
def end_delegation(environment: CommandEnvironment, *, number: int) -> None:
    """End delegation NUMBER immediately.

    For example: keyturn delegate end 3
    """
    with open_service(environment) as service:
        service.delegations.end_delegation(number, person="", source="cli")
    print_result({"id": number, "active": False}, [f"Ended delegation {number}."])


@click.command("grant")
@click.argument("holder", metavar="PERSON")
@click.argument("words", nargs=-1, required=True, metavar="RUNBOOK HOSTS [FIELD=PATTERN]…")
@click.option("--per-hour", type=click.IntRange(1, 100), required=True, help="Runs in an hour.")
@click.option("--until", required=True, help='"tomorrow 18:00" or "3 days", at most 30 days.')
@acting_person_option
@reason_option()
@time_options
@pass_environment
def create_grant(
    environment: CommandEnvironment, *, holder: str, words: tuple[str, ...], **options: Any
) -> None:
    """Approve requests of PERSON in advance, as an owner of every host of HOSTS.

    For example: keyturn grant dora abusers clear 'lb*' --per-hour 5 --until "3 days" --as olga
    """
    from bot.model.grant_words import parse_grant

    typed = f"{holder} {shlex.join(words)} {options['per_hour']} an hour until {options['until']}"
    with open_service(environment, options["person"]) as service:
        new_grant = parse_grant(typed, now=round(time.time() * 1_000_000), zone=get_zone_name())
        grant = service.grants.create_grant(
            new_grant, granted_by=options["person"], reason=options["reason"], source="cli"
        )
    line = (
        f"{grant.id}: {holder} may run {grant.what} without approval, {grant.per_hour} an hour "
        f"until {format_stored_time(grant.ends_at)}. To revoke it: keyturn grants end {grant.id}"
    )
    print_result(record_to_data(grant), [line])


@click.group("grants", cls=CommandGroup)
def grant_commands() -> None:
    """List and revoke standing grants."""


@grant_commands.command("list")
@time_options
@pass_environment
def list_grants(environment: CommandEnvironment) -> None:
    """List active standing grants."""
    from bot.db import grants

    with environment.open_database() as database, database.reading() as tx:
        found = [
            (one, grants.count_uses_left(tx, one)) for one in grants.list_newest_active_grants(tx)
        ]
    rows = [
        (
            str(one.id),
            one.person,
            one.granted_by,
            f"{left} of {one.per_hour}",
            format_stored_time(one.ends_at),
            one.what,
        )
        for one, left in found
    ]
    data = [record_to_data(one, uses_left=left) for one, left in found]
    headings = ("ID", "PERSON", "GRANTED BY", "LEFT THIS HOUR", "UNTIL", "REQUEST")
    print_table(data, headings, rows, empty_message="No standing grants.")


@grant_commands.command("end")
@click.argument("number", type=RecordNumber())
@pass_environment
def revoke_grant(environment: CommandEnvironment, *, number: int) -> None:
    """Revoke grant NUMBER immediately; its runs stop before their next step.

    For example: keyturn grants end 3
    """
    with open_service(environment) as service:
        service.grants.revoke_grant(number, person="", source="cli")
    print_result({"id": number, "active": False}, [f"Revoked grant {number}."])
