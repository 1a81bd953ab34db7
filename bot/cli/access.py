"""`keyturn agent …`, `token …` and `factors …`: agents, API tokens and second factors."""

from typing import TYPE_CHECKING

import click

from bot.cli.client import record_to_data
from bot.cli.context import (
    NOT_FOUND,
    CommandEnvironment,
    RecordNumber,
    exit_on_errors,
    exit_with_error,
    open_service,
    wants_json,
)
from bot.cli.options import acting_person_option, pass_environment, reason_option
from bot.cli.sections import CommandGroup
from bot.cli.terminal import format_stored_time, print_result, print_table, time_options

if TYPE_CHECKING:
    from bot.auth.tokens import ApiToken

_REASON_OPTION = reason_option(required=True)
_SCOPES = ("read", "request", "approve", "metrics")


@click.group("agent", cls=CommandGroup)
def agent_commands() -> None:
    """Manage agents: programs that make requests at /mcp."""


@agent_commands.command("add")
@click.argument("name")
@acting_person_option
@click.option("--owner", required=True, help="Who answers for it: an id of people.yaml.")
@click.option("--purpose", required=True, help="What it is for.")
@click.option("--days", default=90, show_default=True, help="Days until it ends.")
@pass_environment
def add_agent(
    environment: CommandEnvironment, *, name: str, person: str, owner: str, purpose: str, days: int
) -> None:
    """Add agent NAME. Another person has to confirm it.

    For example: keyturn agent add triage-bot --as olga --owner olga --purpose "reads alerts"
    """
    with open_service(environment, person) as service:
        agent = service.agents.add_agent(
            name, owner=owner, purpose=purpose, days=days, person=person
        )
    lines = [f"Added {name}. Another person: keyturn agent confirm {name} --as PERSON"]
    print_result(record_to_data(agent), lines)


@agent_commands.command("confirm")
@click.argument("name")
@acting_person_option
@pass_environment
def confirm_agent(environment: CommandEnvironment, *, name: str, person: str) -> None:
    """Confirm agent NAME that another person added.

    For example: keyturn agent confirm triage-bot --as adam
    """
    with open_service(environment, person) as service:
        agent = service.agents.confirm_agent(name, person=person)
    lines = [
        f"{name} of {agent.owner} is active: {agent.purpose}",
        f"For a token: keyturn agent token {name} --for PERSON",
    ]
    print_result(record_to_data(agent), lines)


@agent_commands.command("list")
@pass_environment
def list_agents(environment: CommandEnvironment) -> None:
    """List all agents."""
    from bot.auth import agents
    from bot.model.times import to_datetime

    with environment.open_database() as database, database.reading() as tx:
        found = [(one, one.get_state(tx.now)) for one in agents.list_agents(tx)]
    lines = [
        f"{one.name:<20}  {state}{f': {one.pause_reason}' if state == 'paused' else ''}  "
        f"owner {one.owner}, until {to_datetime(one.ends_at):%Y-%m-%d}  {one.purpose}"
        for one, state in found
    ]
    data = [record_to_data(one, state=state) for one, state in found]
    print_result(data, lines, empty_message="No agents.")


@agent_commands.command("token")
@click.argument("name")
@click.option("--for", "behalf", default="", help="The person that it acts for; none by default.")
@click.option("--days", default=30, show_default=True, help="Days until it expires.")
@pass_environment
def create_agent_token(
    environment: CommandEnvironment, *, name: str, behalf: str, days: int
) -> None:
    """Create a token of agent NAME, and print it once. It is accepted at /mcp only.

    For example: keyturn agent token triage-bot --for dora
    """
    with open_service(environment) as service:
        token, secret = service.agents.create_token(name, behalf=behalf, days=days)
    print_new_token(token, secret)


@agent_commands.command("pause")
@click.argument("name")
@_REASON_OPTION
@pass_environment
def pause_agent(environment: CommandEnvironment, *, name: str, reason: str) -> None:
    """Pause agent NAME: it makes no request until a person resumes it. Its open runs continue.

    For example: keyturn agent pause triage-bot --reason "it requests nonsense"
    """
    with open_service(environment) as service:
        agent = service.agents.pause_agent(name, person="", reason=reason)
    lines = [f"{name} is paused. keyturn stop agent {name} stops its open runs too."]
    print_result(record_to_data(agent), lines)


@agent_commands.command("resume")
@click.argument("name")
@acting_person_option
@_REASON_OPTION
@pass_environment
def resume_agent(environment: CommandEnvironment, *, name: str, person: str, reason: str) -> None:
    """Resume agent NAME that was paused.

    For example: keyturn agent resume triage-bot --as olga --reason "its instructions are fixed"
    """
    with open_service(environment, person) as service:
        agent = service.agents.resume_agent(name, person=person, reason=reason)
    print_result(record_to_data(agent), [f"{name} can make requests again."])


@agent_commands.command("end")
@click.argument("name")
@_REASON_OPTION
@pass_environment
def end_agent(environment: CommandEnvironment, *, name: str, reason: str) -> None:
    """End agent NAME for good, and revoke its tokens. What it requested does not start.

    For example: keyturn agent end triage-bot --reason "replaced by watch-bot"
    """
    with open_service(environment) as service:
        agent = service.agents.end_agent(name, person="", reason=reason)
    print_result(record_to_data(agent), [f"{name} has ended."])


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
@time_options
@pass_environment
def create_token(
    environment: CommandEnvironment, *, person: str, scopes: tuple[str, ...], days: int, name: str
) -> None:
    """Create an API token of PERSON, and print it once.

    For example: keyturn token new dora --scope request --days 90 --name "the deploy pipeline"
    """
    with open_service(environment) as service:
        token, secret = service.tokens.create_token(
            person=person, scopes=scopes, days=days, name=name, source="cli"
        )
    print_new_token(token, secret)


def print_new_token(token: "ApiToken", secret: str) -> None:
    """Print a token that was created."""
    from bot.model.times import format_iso

    data = {"id": token.id, "token": secret, "expires_at": format_iso(token.expires_at)}
    print_result(data, [secret])
    if not wants_json():
        until = format_stored_time(token.expires_at)
        click.echo(f"Token {token.id}, valid until {until}. It is not shown again.", err=True)
        if not token.is_confirmed:
            click.echo(
                f"It works once {token.behalf} has confirmed it on the page API tokens.", err=True
            )


@token_commands.command("list")
@click.argument("person", default="")
@time_options
@pass_environment
def list_all_tokens(environment: CommandEnvironment, *, person: str) -> None:
    """List the tokens of PERSON, or of everyone."""
    from bot.auth import tokens

    with environment.open_database() as database, database.reading() as tx:
        found, now = tokens.list_tokens(tx, person), tx.now
    if person and not found:
        _require_known_person(environment, person)
    rows = [
        (
            str(one.id),
            f"{one.prefix}…",
            one.person,
            ",".join(one.scopes),
            "revoked" if one.revoked_at else "active" if one.is_active(now) else "expired",
            format_stored_time(one.expires_at),
            format_stored_time(one.last_used_at) if one.last_used_at else "never",
            one.name,
        )
        for one in found
    ]
    data = [record_to_data(one, active=one.is_active(now)) for one in found]
    headings = ("ID", "TOKEN", "PERSON", "SCOPES", "STATE", "EXPIRES", "LAST USED", "NAME")
    print_table(data, headings, rows, empty_message="No tokens.")


def _require_known_person(environment: CommandEnvironment, person: str) -> None:
    from bot.policy.loader import load_policy

    with exit_on_errors():
        policy = load_policy(environment.settings.policy)
    if policy.find_person(person) is None:
        exit_with_error(f"unknown person {person}: use an id of people.yaml", NOT_FOUND)


@token_commands.command("revoke")
@click.argument("number", type=RecordNumber())
@pass_environment
def revoke_token(environment: CommandEnvironment, *, number: int) -> None:
    """Revoke token NUMBER.

    For example: keyturn token revoke 3
    """
    with open_service(environment) as service:
        found = service.tokens.revoke_token(number, person="", source="cli")
    line = f"Revoked token {number} of {found.person}."
    print_result({"id": number, "person": found.person, "active": False}, [line])


@click.group("factors", cls=CommandGroup)
def factor_commands() -> None:
    """Manage second factors."""


@factor_commands.command("list")
@pass_environment
def list_factors(environment: CommandEnvironment) -> None:
    """List second factors with their digest, and whether they are valid."""
    from bot.auth import second_factors as store
    from bot.policy.loader import load_policy
    from bot.queries.second_factor import is_factor_valid

    with environment.open_database() as database, database.reading() as tx:
        policy = load_policy(environment.settings.policy)
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
    print_result(data, lines, empty_message="No second factors.")


@factor_commands.command("forget")
@_REASON_OPTION
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_environment
def delete_factors(environment: CommandEnvironment, *, reason: str, yes: bool) -> None:
    """Delete all second factors, if secrets.key is lost.

    Stop the service first, and remove the new secrets.key if there is one.

    For example: keyturn factors forget --reason "secrets.key was on the broken disk"
    """
    from bot.audit import change_log, events
    from bot.auth import second_factors as store
    from bot.auth import secret_box

    if not yes:
        question = "Everyone must enrol again. Delete every second factor?"
        click.confirm(question, abort=True, err=wants_json())
    with environment.open_database() as database, database.transaction() as tx:
        number = store.delete_all_factors(tx)
        secret_box.delete_sealed_trial(tx)
        change_log.append_entry(
            tx, events.AllFactorsRemoved(source="cli", reason=reason, number=number)
        )
    line = f"Deleted {number} second factors. People enrol again at /second-factor."
    print_result({"deleted": number}, [line])
