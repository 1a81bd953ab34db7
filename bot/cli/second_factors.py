"""`keyturn factors`: whose second factors there are, and how to begin anew without their key."""

import click

from bot.cli.client import json_option, print_result
from bot.cli.context import CommandEnvironment, exit_on_errors, pass_environment
from bot.cli.sections import CommandGroup


@click.group("factors", cls=CommandGroup)
def factor_commands() -> None:
    """Look after the second factors of people."""


@factor_commands.command("list")
@json_option
@pass_environment
def list_factors(environment: CommandEnvironment, *, as_json: bool) -> None:
    """Print every second factor by its digest, and whether it counts."""
    from bot.auth import second_factors as store
    from bot.policy.loader import load_policy
    from bot.workflow.second_factor import is_factor_valid

    with exit_on_errors(), environment.open_database() as database, database.reading() as tx:
        policy = load_policy(environment.get_policy_directory())
        found = [
            (factor, is_factor_valid(policy, factor)) for factor in store.list_verified_factors(tx)
        ]
    told = [
        {
            "person": factor.person,
            "kind": factor.kind,
            "digest": factor.digest,
            "confirmed_by": factor.confirmed_by,
            "counts": good,
        }
        for factor, good in found
    ]
    lines = [
        f"{factor.digest}  {factor.kind:<7}  {factor.person}  "
        f"{'counts' if good else 'does not count yet'}"
        for factor, good in found
    ]
    print_result(told, lines, as_json=as_json, empty_message="nobody has a second factor")


@factor_commands.command("forget")
@click.option("--why", required=True, help="What the change log shall say about it.")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@json_option
@pass_environment
def delete_factors(environment: CommandEnvironment, *, why: str, yes: bool, as_json: bool) -> None:
    """Forget them all, where their key is lost for good.

    Stop the service first, and take the new secrets.key away if there is one.
    """
    from bot.audit import change_log
    from bot.auth import second_factors as store
    from bot.auth import secret_box

    if not yes:
        asked = "Everybody has to enrol anew. Forget every second factor?"
        click.confirm(asked, abort=True, err=as_json)
    with exit_on_errors(), environment.open_database() as database, database.transaction() as tx:
        number = store.delete_all_factors(tx)
        secret_box.delete_sealed_trial(tx)
        change_log.append_entry(tx, "all factors removed", source="cli", reason=why, number=number)
    said = f"{number} second factors are forgotten; people enrol anew at /second-factor"
    print_result({"forgotten": number}, [said], as_json=as_json)
