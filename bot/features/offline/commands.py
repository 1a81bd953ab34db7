"""`keyturn offline`: change an enrolled host while Keyturn is down."""

import getpass
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    REFUSED,
    CommandEnvironment,
    exit_on_errors,
    exit_with_error,
    wants_json,
)
from bot.cli.options import ACTING_PERSON_HELP, pass_environment, reason_option
from bot.cli.sections import CommandGroup
from bot.cli.signing import describe_plan, find_own_key, key_option, show_and_sign
from bot.cli.terminal import escape_for_terminal, print_json

if TYPE_CHECKING:
    from bot.features.offline.plan_file import PlanFile
    from bot.features.offline.workspace import Workspace
    from bot.model.plan import ResolvedPlan
    from bot.policy import Policy

_FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="PLAN")
_PERSON = click.option("--as", "person", required=True, help=ACTING_PERSON_HELP)


def _login_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about the person's own login on hosts."""
    command = key_option("--ssh-key", "ssh_key")(command)
    return click.option("--login", default="", help="Your login on the host. Default: as here.")(
        command
    )


@click.group("offline", cls=CommandGroup)
def offline_commands() -> None:
    """Change an enrolled host while Keyturn is down, with two signatures.

    You need the policy directory (KEYTURN_POLICY), your signing key, and a login on the host that
    its inventory entry names in offline_logins. docs/offline.md is the drill.
    """


@offline_commands.command("plan")
@click.argument("words", nargs=-1, required=True, metavar="RUNBOOK HOST…")
@_PERSON
@reason_option("Reason, part of what people sign.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="PLAN",
    help="The file to write; it must not exist.",
)
@_login_options
@pass_environment
def plan_change(
    environment: CommandEnvironment,
    *,
    words: tuple[str, ...],
    person: str,
    reason: str,
    output: Path,
    login: str,
    ssh_key: Path | None,
) -> None:
    """Read the host with your own login, show the plan, and write it to a file.

    For example: keyturn offline plan "abusers clear lb1 203.0.113.9" --as olga
    --reason "a customer is locked out" -o plan.txt
    """
    from bot.features.offline import actions
    from bot.model.request_form import split_words

    if output.exists():
        exit_with_error(f"{output} exists already: choose another name", REFUSED)
    typed = split_words(words[0]) if len(words) == 1 else list(words)
    with _open_workspace(environment, person, login, ssh_key) as workspace:
        file, plan = actions.plan_change(workspace, typed, person=person, reason=reason)
        output.write_text(file.format())
    if wants_json():
        print_json(_describe_file(output, plan) | {"notes": plan.notes})
        return
    for line in (plan.current_state, *describe_plan(plan), *plan.notes):
        click.echo(escape_for_terminal(line))
    click.echo(f"Written to {output}. Two people sign it: keyturn offline sign {output} --as …")


@offline_commands.command("sign")
@_FILE
@_PERSON
@key_option("--key", "key_file")
@click.option("--yes", is_flag=True, help="Sign without asking.")
@click.option("--passkey", default="", help="What the signing page showed when you signed there.")
@pass_environment
def sign_plan(
    environment: CommandEnvironment,
    *,
    file: Path,
    person: str,
    key_file: Path | None,
    yes: bool,
    passkey: str,
) -> None:
    """Show what PLAN does, from its own bytes, and add your signature to it.

    For example: keyturn offline sign plan.txt --as olga --key ~/.ssh/id_ed25519_sk
    """
    from bot.features.offline import actions

    with exit_on_errors():
        policy = _read_policy(environment, person)
        found = _read_file(file)
        plan = actions.check_can_sign(policy, found, person)
        signature = (
            actions.read_passkey(policy, found, person, passkey)
            if passkey
            else show_and_sign(plan, key_file, yes=yes)
        )
        signed = actions.add_signature(policy, found, person, signature)
        _replace_file(file, signed)
        people = [one.person for one in actions.list_signers(policy, signed, plan)]
    if wants_json():
        print_json(_describe_file(file, plan) | {"signers": people})
        return
    click.echo(f"Signed by {', '.join(people)}: {file}")


@offline_commands.command("run")
@_FILE
@_PERSON
@_login_options
@pass_environment
def run_plan(
    environment: CommandEnvironment,
    *,
    file: Path,
    person: str,
    login: str,
    ssh_key: Path | None,
) -> None:
    """Have the host run PLAN, over your own login, and verify the result.

    The host checks the signatures itself. What happened is written to PLAN.record; Keyturn reads
    it from the host when it is back.

    For example: keyturn offline run plan.txt --as adam
    """
    from bot.features.offline import actions
    from bot.model.run import State
    from bot.model.run_states import describe_outcome

    with _open_workspace(environment, person, login, ssh_key) as workspace:
        plan = _read_file(file)
        say = _ignore_event if wants_json() else _print_event
        run, record = actions.run_plan(workspace, plan, say=say)
        summary = describe_outcome(run)
        written = file.with_name(f"{file.name}.record")
        written.write_text(record.format())
    if run.state in {State.SUCCEEDED, State.NO_CHANGES}:
        if wants_json():
            ended = {"state": run.state, "summary": summary, "events": record.events}
            print_json(_describe_file(written, record.plan) | ended)
        return
    if not run.is_ended:
        exit_with_error(f"nothing was sent: {summary}", REFUSED)
    was_refused = run.state in {State.REFUSED, State.STALE, State.EXPIRED, State.DENIED}
    exit_with_error(summary, REFUSED if was_refused else FAILED)


def _print_event(sentence: str) -> None:
    click.echo(escape_for_terminal(sentence))


def _ignore_event(_sentence: str) -> None:
    return


def _describe_file(file: Path, plan: "ResolvedPlan") -> dict[str, object]:
    """Return what JSON says of the file of a plan."""
    from bot.model.times import format_iso

    return {
        "file": str(file),
        "digest": plan.digest,
        "runbook": plan.runbook,
        "values": plan.values,
        "host": plan.sections[0].host,
        "requested_by": plan.requested_by,
        "expires_at": format_iso(plan.expires_at),
    }


@contextmanager
def _open_workspace(
    environment: CommandEnvironment, person: str, login: str, ssh_key: Path | None
) -> "Generator[Workspace]":
    from bot.features.offline.workspace import OwnLogin, open_workspace
    from bot.workflow.hooks import NO_WORKFLOW_HOOKS

    own = OwnLogin(login or getpass.getuser(), (ssh_key or find_own_key()).absolute())
    hooks = environment.load_hooks() if environment.load_hooks else NO_WORKFLOW_HOOKS
    with exit_on_errors():
        _read_policy(environment, person)
        with open_workspace(environment.settings.policy, own, hooks) as workspace:
            yield workspace


def _read_policy(environment: CommandEnvironment, person: str) -> "Policy":
    from bot.policy import PolicyDirectory
    from connectors.permissions import list_trusted_owners

    directory = environment.settings.policy
    policy = PolicyDirectory(directory, owners=list_trusted_owners()).get_policy()
    if policy.find_person(person) is None:
        exit_with_error(
            f"unknown person {person}: use an id of {directory}/people.yaml", NOT_FOUND
        )
    return policy


def _read_file(file: Path) -> "PlanFile":
    from bot.features.offline.plan_file import parse_plan_file

    try:
        return parse_plan_file(file.read_bytes().decode())
    except UnicodeDecodeError:
        exit_with_error(f"{file} is no text: this is no offline plan", NOT_UNDERSTOOD)


def _replace_file(file: Path, content: "PlanFile") -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_text(content.format())
    new.replace(file)
