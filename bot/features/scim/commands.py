"""`keyturn people …`: where the people of the policy are from, and proposals from Slack."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.cli.context import FAILED, CommandEnvironment, exit_on_errors, exit_with_error
from bot.cli.options import pass_environment
from bot.cli.sections import CommandGroup
from bot.cli.terminal import print_table

if TYPE_CHECKING:
    from bot.policy import Policy

_IN_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_OUT_FILE = click.Path(path_type=Path, dir_okay=False)
_MAX_BYTES = 50_000_000


@click.group("people", cls=CommandGroup)
def people_commands() -> None:
    """List the people of the policy and where they are from; propose members of Slack."""


@people_commands.command("list")
@pass_environment
def list_people(environment: CommandEnvironment) -> None:
    """List everyone of people.yaml and of the identity provider, with groups and roles.

    A person with a problem has no rights. The command reads the database, on the server.
    """
    from bot.features.scim import people

    with exit_on_errors():
        found = people.list_people(_read_policy(environment))
    rows = [
        (
            one.id,
            one.name,
            one.source,
            one.account or "-",
            ", ".join(one.groups) or "-",
            ", ".join(one.roles) or "-",
            one.problem or "-",
        )
        for one in found
    ]
    headings = ("ID", "NAME", "FROM", "ACCOUNT", "GROUPS", "ROLES", "PROBLEM")
    print_table([*map(asdict, found)], headings, rows, empty_message="No people.")


@people_commands.command("import-slack")
@click.argument("members", type=_IN_FILE)
@click.option("--output", type=_OUT_FILE, help="Write a new file instead of printing it.")
@click.option("--team", default="", help="The id of the workspace; default: KEYTURN_SLACK_TEAM.")
@pass_environment
def import_slack(
    environment: CommandEnvironment, *, members: Path, output: Path | None, team: str
) -> None:
    """Propose entries of people.yaml for the members in Slack's CSV file MEMBERS.

    People are matched by e-mail address. Nothing is in force before you copy it to people.yaml.

    For example: keyturn people import-slack members.csv --output proposed.yaml
    """
    from bot.features.scim.slack_members import (
        format_proposals,
        parse_members,
        propose_people,
    )
    from bot.model.text import format_count

    with exit_on_errors():
        team = team or environment.settings.slack_team
        if not team:
            exit_with_error("name the workspace: --team T0123ABCD, or KEYTURN_SLACK_TEAM", FAILED)
        if members.stat().st_size > _MAX_BYTES:
            exit_with_error(f"{members} has more than 50 MB: it is no member list", FAILED)
        text = members.read_text(encoding="utf-8", errors="replace")
        policy = _read_policy(environment)
        proposals = [*propose_people(policy, parse_members(text), team=team)]
        written = format_proposals(proposals)
    if output is None:
        click.echo(written, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(written)
    except OSError as error:
        exit_with_error(f"cannot write {output}: {error.strerror}", FAILED)
    known = sum(one.is_known for one in proposals)
    new = format_count(len(proposals) - known, "new person", plural="new people")
    click.echo(f"wrote {output}: {new}, {format_count(known, 'Slack account')} of known people")


def _read_policy(environment: CommandEnvironment) -> "Policy":
    """Return the policy with what the provider says, if there is a database."""
    from bot.policy.loader import load_policy
    from bot.queries.policy_facts import apply_facts

    policy = load_policy(environment.settings.policy)
    if not environment.has_database():
        return policy
    facts = environment.load_hooks().policy_facts if environment.load_hooks else ()
    with environment.open_database() as database, database.reading() as tx:
        return apply_facts(facts, tx, policy)
