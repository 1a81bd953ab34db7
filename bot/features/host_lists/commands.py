"""`keyturn host-list …`: lists of hosts that a second person confirms at once."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import click

from bot.cli.client import ServiceClient, build_path, pass_service
from bot.cli.context import FAILED, CommandEnvironment, RecordNumber, exit_on_errors
from bot.cli.options import pass_environment, reason_option
from bot.cli.sections import CommandGroup
from bot.cli.terminal import format_time, print_result, print_table

_SIGNS = {"add": "+", "change": "~", "remove": "-"}


@click.group("host-list", cls=CommandGroup)
def host_list_commands() -> None:
    """Add, change or remove many hosts by one list that a second person confirms."""


@host_list_commands.command("list")
@pass_service
def list_host_lists(service: ServiceClient) -> None:
    """List the lists of hosts of the last 30 days that concern you."""
    found = service.get("/host-lists")
    rows = [
        (
            str(one["id"]),
            one["state"],
            format_time(one["proposed_at"]),
            one["proposed_by"] or f"source {one['source']}",
            ", ".join(one["areas"]),
            one["summary"],
        )
        for one in found["lists"]
    ]
    headings = ("NO.", "STATE", "PROPOSED", "BY", "AREAS", "HOSTS")
    print_table(found["lists"], headings, rows, empty_message="No lists of hosts.")
    for number in found["unreadable"]:
        click.echo(
            f"keyturn: entry {number} of the change log is about a list of hosts, and cannot be "
            "read",
            err=True,
        )


@host_list_commands.command("propose")
@click.argument("file", type=click.File(encoding="utf-8"))
@pass_service
def propose_host_list(service: ServiceClient, *, file: IO[str]) -> None:
    """Propose the hosts of FILE; - is standard input. You are the first of two people.

    FILE has `hosts:` as inventory.yaml has, and `remove:` with names. It may be JSON, as the
    Ansible role writes it.

    For example: keyturn host-list propose keyturn-hosts.json
    """
    with exit_on_errors():
        body = _read_list_file(file)
    _print_list(service.post("/host-lists", body))


def _read_list_file(file: IO[str]) -> dict[str, Any]:
    from bot.policy.yaml_file import YamlFile

    return YamlFile(file.name, file.read()).parse_data()


@host_list_commands.command("show")
@click.argument("number", type=RecordNumber())
@pass_service
def show_host_list(service: ServiceClient, *, number: int) -> None:
    """Show every change of list NUMBER, and the digest to confirm.

    For example: keyturn host-list show 7
    """
    _print_list(service.get(build_path("host-lists", number)))


@host_list_commands.command("confirm")
@click.argument("number", type=RecordNumber())
@click.argument("digest")
@pass_service
def confirm_host_list(service: ServiceClient, *, number: int, digest: str) -> None:
    """Confirm list NUMBER as you read it: DIGEST is what `show` printed, or its first ten digits.

    For example: keyturn host-list confirm 7 3f9a0c1b22
    """
    body = {"digest": digest}
    found = service.post(build_path("host-lists", number, "confirm"), body)
    print_result(found, [_describe_state(found)])


@host_list_commands.command("withdraw")
@click.argument("number", type=RecordNumber())
@reason_option()
@pass_service
def withdraw_host_list(service: ServiceClient, *, number: int, reason: str) -> None:
    """Withdraw list NUMBER, which is not written yet.

    For example: keyturn host-list withdraw 7 --reason "web9 is a test machine"
    """
    found = service.post(build_path("host-lists", number, "withdraw"), {"reason": reason})
    print_result(found, [_describe_state(found)])


@host_list_commands.command("write")
@click.argument("number", type=RecordNumber())
@pass_environment
def write_host_list(environment: CommandEnvironment, *, number: int) -> None:
    """Write list NUMBER, which two people have confirmed, to inventory.yaml on this machine.

    For a service that may not write to the policy directory, and for further copies of it. Needs
    Keyturn's keys, which prove who confirmed it.

    For example: keyturn host-list write 7
    """
    from bot.features.host_lists.routes import HostListOut
    from bot.features.host_lists.writing import write_list
    from bot.policy import PolicyDirectory
    from bot.queries.banned_people import PolicyWithoutBanned

    directory = environment.settings.policy
    with exit_on_errors(), environment.open_database() as database:
        policies = PolicyWithoutBanned(PolicyDirectory(directory), database)
        found = write_list(database, policies, directory, number)
    data = HostListOut.from_list(found).model_dump(mode="json")
    print_result(data, [_describe_state(data)])


@host_list_commands.command("read")
@click.argument("source")
@pass_environment
def read_host_source(environment: CommandEnvironment, *, source: str) -> None:
    """Read SOURCE now and print what it would propose. Proposes and changes nothing.

    For example: keyturn host-list read netbox
    """
    from bot.cli.context import NOT_FOUND, exit_with_error
    from bot.features.host_lists.routes import HostChangeOut
    from bot.features.host_lists.sources import SourceError, load_sources, read_source
    from bot.features.host_lists.sync import compute_proposal
    from bot.policy.loader import load_policy

    with exit_on_errors():
        try:
            sources = load_sources(environment.settings.host_sources)
            if source not in sources:
                names = ", ".join(sources) or "none"
                exit_with_error(
                    f"no source {source}; the file of KEYTURN_HOST_SOURCES has: {names}", NOT_FOUND
                )
            policy = load_policy(environment.settings.policy)
            found = compute_proposal(policy, sources[source], read_source(sources[source]))
        except SourceError as error:
            exit_with_error(str(error), FAILED)
    changes = [
        HostChangeOut.from_change(one).model_dump(mode="json")
        for group in found.lists
        for one in group
    ]
    data = {"changes": changes, "remarks": [*found.remarks], "problem": found.problem}
    lines = [
        *(line for one in changes for line in _format_change(one)),
        *(f"not used: {remark}" for remark in found.remarks),
    ]
    print_result(data, lines, empty_message="Nothing differs from the inventory.")
    if found.problem:
        exit_with_error(found.problem, FAILED)


def _print_list(found: Mapping[str, Any]) -> None:
    print_result(found, [*_format_list(found)])


def _format_list(found: Mapping[str, Any]) -> Iterator[str]:
    by = found["proposed_by"] or f"source {found['source']}"
    yield f"List {found['id']}, proposed by {by}: {found['summary']}"
    for one in found["changes"]:
        yield from _format_change(one)
    yield _describe_state(found)
    if found["state"] == "open" and found["requires_second_factor"]:
        yield f"To confirm it, with your second factor: its page, /host-lists/{found['id']}"
    elif found["state"] == "open":
        yield f"To confirm it: keyturn host-list confirm {found['id']} {found['digest']}"


def _format_change(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_SIGNS[one['action']]} {one['name']}"
    yield from (f"    {line}" for line in one["lines"])


def _describe_state(found: Mapping[str, Any]) -> str:
    people = ", ".join(found["confirmed_by"])
    confirmed = f", confirmed by {people}" if people else ""
    reason = f": {found['reason']}" if found["reason"] else ""
    missing = found["missing"]
    needs = (
        f"; needs {missing} more of the owners of {', '.join(found['areas'])}" if missing else ""
    )
    return f"List {found['id']} is {found['state']}{confirmed}{needs}{reason}."


@host_list_commands.command("programs")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--signatures",
    is_flag=True,
    help="Of `keyturn host-files`, which has the hosts check signatures.",
)
@pass_environment
def write_programs(
    environment: CommandEnvironment, *, file: IO[str], directory: Path, signatures: bool
) -> None:
    """Write into DIRECTORY the program that installs Keyturn's rights, for each host of FILE.

    HOST.sh is what `keyturn sudoers HOST --scripts` prints, also for hosts that are not in the
    inventory yet. The Ansible role calls this; root runs the programs on the hosts.

    For example: keyturn host-list programs keyturn-hosts.json programs
    """
    from bot.features.host_lists.programs import build_programs

    settings = environment.settings
    page = settings.signing_page or settings.address
    with exit_on_errors():
        programs = build_programs(
            settings.policy, _read_list_file(file), page=page if signatures else ""
        )
        directory.mkdir(parents=True, exist_ok=True)
        changed = [name for name, text in programs.items() if _write(directory / name, text)]
    data = {"programs": len(programs), "changed": changed}
    print_result(data, [f"{len(changed)} of {len(programs)} programs changed"])


def _write(file: Path, text: str) -> bool:
    """Write a file; False if it has this text already."""
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return False
    file.write_text(text, encoding="utf-8")
    return True
