"""`keyturn factors`: list second factors, and delete all of them after the loss of their key."""

import click

from bot.cli.client import print_result
from bot.cli.context import CommandEnvironment, exit_on_errors, pass_environment
from bot.cli.options import json_option, reason_option
from bot.cli.sections import CommandGroup


@click.group("factors", cls=CommandGroup)
def factor_commands() -> None:
    """Manage second factors."""


@factor_commands.command("list")
@json_option
@pass_environment
def list_factors(environment: CommandEnvironment, *, as_json: bool) -> None:
    """List second factors with their digest, and whether they are valid."""
    from bot.auth import second_factors as store
    from bot.policy.loader import load_policy
    from bot.queries.second_factor import is_factor_valid

    with exit_on_errors(), environment.open_database() as database, database.reading() as tx:
        policy = load_policy(environment.get_policy_directory())
        found = [
            (factor, is_factor_valid(policy, factor)) for factor in store.list_verified_factors(tx)
        ]
    data = [
        {
            "person": factor.person,
            "kind": factor.kind,
            "digest": factor.digest,
            "confirmed_by": factor.confirmed_by,
            "valid": is_valid,
        }
        for factor, is_valid in found
    ]
    lines = [
        f"{factor.digest}  {factor.kind:<7}  {factor.person}  "
        f"{'valid' if is_valid else 'not confirmed'}"
        for factor, is_valid in found
    ]
    print_result(data, lines, as_json=as_json, empty_message="No second factors.")


@factor_commands.command("forget")
@reason_option(required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@pass_environment
def delete_factors(
    environment: CommandEnvironment, *, reason: str, yes: bool, as_json: bool
) -> None:
    """Delete all second factors, if secrets.key is lost.

    Stop the service first, and remove the new secrets.key if there is one.

    For example: keyturn factors forget --reason "secrets.key was on the broken disk"
    """
    from bot.audit import change_log
    from bot.auth import second_factors as store
    from bot.auth import secret_box

    if not yes:
        question = "Everyone must enrol again. Delete every second factor?"
        click.confirm(question, abort=True, err=as_json)
    with exit_on_errors(), environment.open_database() as database, database.transaction() as tx:
        number = store.delete_all_factors(tx)
        secret_box.delete_sealed_trial(tx)
        change_log.append_entry(
            tx, "all factors removed", source="cli", reason=reason, number=number
        )
    line = f"Deleted {number} second factors. People enrol again at /second-factor."
    print_result({"deleted": number}, [line], as_json=as_json)
