"""`keyturn agent …`: add, confirm, list, pause, resume and end agents, and create their tokens."""

import json

import click

from bot.cli.client import print_result, record_to_data
from bot.cli.context import CommandEnvironment, pass_environment
from bot.cli.offline import open_service
from bot.cli.options import acting_person_option, json_option, reason_option
from bot.cli.sections import CommandGroup

_REASON_OPTION = reason_option(required=True)


@click.group("agent", cls=CommandGroup)
def agent_commands() -> None:
    """Manage agents: programs that make requests at /mcp."""


@agent_commands.command("add")
@click.argument("name")
@acting_person_option
@click.option("--owner", required=True, help="Who answers for it: an id of people.yaml.")
@click.option("--purpose", required=True, help="What it is for.")
@click.option("--days", default=90, show_default=True, help="Days until it ends.")
@json_option
@pass_environment
def add_agent(
    environment: CommandEnvironment,
    *,
    name: str,
    person: str,
    owner: str,
    purpose: str,
    days: int,
    as_json: bool,
) -> None:
    """Add agent NAME. Another person has to confirm it.

    For example: keyturn agent add triage-bot --as olga --owner olga --purpose "reads alerts"
    """
    with open_service(environment) as service:
        agent = service.agents.add_agent(
            name, owner=owner, purpose=purpose, days=days, person=person
        )
    lines = [f"Added {name}. Another person: keyturn agent confirm {name} --as PERSON"]
    print_result(record_to_data(agent), lines, as_json=as_json)


@agent_commands.command("confirm")
@click.argument("name")
@acting_person_option
@json_option
@pass_environment
def confirm_agent(
    environment: CommandEnvironment, *, name: str, person: str, as_json: bool
) -> None:
    """Confirm agent NAME that another person added.

    For example: keyturn agent confirm triage-bot --as adam
    """
    with open_service(environment) as service:
        agent = service.agents.confirm_agent(name, person=person)
    lines = [
        f"{name} of {agent.owner} is active: {agent.purpose}",
        f"For a token: keyturn agent token {name} --for PERSON",
    ]
    print_result(record_to_data(agent), lines, as_json=as_json)


@agent_commands.command("list")
@json_option
@pass_environment
def list_agents(environment: CommandEnvironment, *, as_json: bool) -> None:
    """List all agents."""
    from bot.audit.formats import to_datetime
    from bot.auth import agents

    with environment.open_database() as database, database.reading() as tx:
        found, now = agents.list_agents(tx), tx.now
    if as_json:
        shown = [record_to_data(one, state=one.get_state(now)) for one in found]
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    for one in found:
        why = f": {one.pause_reason}" if one.get_state(now) == "paused" else ""
        click.echo(
            f"{one.name:<20}  {one.get_state(now)}{why}  owner {one.owner}, until "
            f"{to_datetime(one.ends_at):%Y-%m-%d}  {one.purpose}"
        )
    if not found:
        click.echo("No agents.", err=True)


@agent_commands.command("token")
@click.argument("name")
@click.option("--for", "behalf", default="", help="The person that it acts for; none by default.")
@click.option("--days", default=30, show_default=True, help="Days until it expires.")
@json_option
@pass_environment
def create_token(
    environment: CommandEnvironment, *, name: str, behalf: str, days: int, as_json: bool
) -> None:
    """Create a token of agent NAME, and print it once. It is accepted at /mcp only.

    For example: keyturn agent token triage-bot --for dora
    """
    from bot.audit.formats import to_datetime
    from bot.model.times import format_iso

    with open_service(environment) as service:
        token, secret = service.agents.create_token(name, behalf=behalf, days=days)
    if as_json:
        data = {"id": token.id, "token": secret, "expires_at": format_iso(token.expires_at)}
        click.echo(json.dumps(data))
        return
    click.echo(secret)
    until = f"{to_datetime(token.expires_at):%Y-%m-%d %H:%M} UTC"
    click.echo(f"Token {token.id}, valid until {until}. It is not shown again.", err=True)


@agent_commands.command("pause")
@click.argument("name")
@_REASON_OPTION
@json_option
@pass_environment
def pause_agent(environment: CommandEnvironment, *, name: str, reason: str, as_json: bool) -> None:
    """Pause agent NAME: it makes no request until a person resumes it. Its open runs continue.

    For example: keyturn agent pause triage-bot --reason "it requests nonsense"
    """
    with open_service(environment) as service:
        agent = service.agents.pause_agent(name, person="", reason=reason)
    lines = [f"{name} is paused. keyturn stop agent {name} stops its open runs too."]
    print_result(record_to_data(agent), lines, as_json=as_json)


@agent_commands.command("resume")
@click.argument("name")
@acting_person_option
@_REASON_OPTION
@json_option
@pass_environment
def resume_agent(
    environment: CommandEnvironment, *, name: str, person: str, reason: str, as_json: bool
) -> None:
    """Resume agent NAME that was paused.

    For example: keyturn agent resume triage-bot --as olga --reason "its instructions are fixed"
    """
    with open_service(environment) as service:
        agent = service.agents.resume_agent(name, person=person, reason=reason)
    print_result(record_to_data(agent), [f"{name} can make requests again."], as_json=as_json)


@agent_commands.command("end")
@click.argument("name")
@_REASON_OPTION
@json_option
@pass_environment
def end_agent(environment: CommandEnvironment, *, name: str, reason: str, as_json: bool) -> None:
    """End agent NAME for good, and revoke its tokens. What it requested does not start.

    For example: keyturn agent end triage-bot --reason "replaced by watch-bot"
    """
    with open_service(environment) as service:
        agent = service.agents.end_agent(name, person="", reason=reason)
    print_result(record_to_data(agent), [f"{name} has ended."], as_json=as_json)
