"""`keyturn inventory …`: the words that a person types, and what scripts read of it."""

import json
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from bot.hosts.imported_host import ImportedHosts
    from bot.hosts.inventory_writer import InventoryEntry
    from connectors.inventory import Host

FAILED, NOT_UNDERSTOOD, NOT_FOUND = 1, 2, 3
# The host still waits: a file could not be written, and what belongs into it was printed.
EXIT_NOT_WRITTEN = 5
# Those of the inventory, which is not loaded for words alone.
PLATFORMS = ("linux", "cisco_ios", "dell_powerconnect", "frr")

# The context's object: asks the settings for the policy directory when a command needs it.
GetPolicyDirectory = Callable[[], Path]
Item = TypeVar("Item")
_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="For programs.")


@click.group("inventory")
def inventory_commands() -> None:
    """Look after the hosts: are they well, which are missing?"""


@inventory_commands.command("check")
@click.argument("hosts", nargs=-1, metavar="[HOST]…")
@_JSON_OPTION
@click.pass_obj
def check_inventory(
    get_policy_directory: GetPolicyDirectory, *, hosts: tuple[str, ...], as_json: bool
) -> None:
    """Log in everywhere, or on each HOST, and say what stands in the way.

    Changes nothing. Exit status 1 if any host is not well.
    """
    from bot.cli import inventory_format
    from bot.hosts.live_check import check_hosts
    from bot.policy.loader import load_policy
    from connectors.fleet import Fleet
    from connectors.ssh_pool import SshPool

    with _exit_on_errors():
        directory = get_policy_directory()
        known = load_policy(directory).inventory
        names = [known[name].name for name in dict.fromkeys(hosts)] or list(known.hosts)
    fleet = Fleet(known, SshPool(directory))
    try:
        with _show_progress(check_hosts(fleet, names), len(names), quiet=as_json) as arriving:
            found = {each.host: each for each in arriving}
    finally:
        fleet.close()
    ordered = [found[name] for name in names]
    if as_json:
        click.echo(
            json.dumps(inventory_format.checks_to_data(ordered), indent=2, ensure_ascii=False)
        )
    elif not ordered:
        click.echo("the inventory has no hosts yet: `keyturn inventory enroll` adds the first")
    else:
        click.echo(inventory_format.format_checks(ordered))
    sys.exit(0 if all(each.is_healthy for each in ordered) else FAILED)


@inventory_commands.group("import")
def import_commands() -> None:
    """Turn another program's list of hosts into entries for inventory.yaml.

    The entries are printed, with a note above each host of what it lacks; nothing is written and
    nobody is asked.
    """


_KNOWN_HOSTS_OPTION = click.option(
    "--known-hosts",
    "known",
    multiple=True,
    type=click.File(encoding="utf-8", errors="replace"),
    help="Take the hosts' keys from this file; hashed names are found too. May be repeated.",
)
_AREA_OPTION = click.option("--area", default="", help="The area that all of them belong to.")


@import_commands.command("ansible")
@click.argument("file", type=click.File(encoding="utf-8"))
@_KNOWN_HOSTS_OPTION
@_AREA_OPTION
@_JSON_OPTION
def import_from_ansible(
    *, file: IO[str], known: tuple[IO[str], ...], area: str, as_json: bool
) -> None:
    """Read what `ansible-inventory --list` prints of an inventory; - is standard input.

    Groups become tags. Ansible itself reads the inventory, its variables and plugins, where it is
    installed:

    ansible-inventory -i hosts.ini --list | keyturn inventory import ansible -
    """
    from bot.hosts import ansible

    with _exit_on_errors():
        _print_imported_hosts(
            ansible.parse_ansible_inventory(file.read()), known, area, as_json=as_json
        )


@import_commands.command("ssh-config")
@click.argument("file", type=click.File(encoding="utf-8"))
@_KNOWN_HOSTS_OPTION
@_AREA_OPTION
@_JSON_OPTION
def import_from_ssh_config(
    *, file: IO[str], known: tuple[IO[str], ...], area: str, as_json: bool
) -> None:
    """Read the configuration of an SSH client, such as ~/.ssh/config; - is standard input."""
    from bot.hosts import ssh_config

    with _exit_on_errors():
        _print_imported_hosts(
            ssh_config.parse_ssh_config(file.read()), known, area, as_json=as_json
        )


def _print_imported_hosts(
    imported: "ImportedHosts", known_hosts_files: Sequence[IO[str]], area: str, *, as_json: bool
) -> None:
    from bot.hosts import inventory_writer, known_hosts
    from bot.model.text import escape_to_one_line

    for remark in imported.remarks:
        click.echo(escape_to_one_line(remark), err=True)
    if not imported.hosts:
        _exit_with_error("there is no host in this file that has a name of its own", FAILED)
    lines = [
        line for file in known_hosts_files for line in known_hosts.parse_known_hosts(file.read())
    ]
    made = inventory_writer.build_entries(imported.hosts, lines, area=area)
    _print_entries(made, as_json=as_json)
    whole = sum(each.is_complete for each in made)
    click.echo(
        f"{len(made)} hosts: {whole} whole, {len(made) - whole} lacking something", err=True
    )


def _print_entries(entries: "Sequence[InventoryEntry]", *, as_json: bool) -> None:
    from bot.hosts import inventory_writer

    if as_json:
        click.echo(
            json.dumps(inventory_writer.build_entries_data(entries), indent=2, ensure_ascii=False)
        )
    else:
        click.echo(inventory_writer.render_entries(entries), nl=False)


@inventory_commands.command("enroll")
@click.argument("name")
@click.argument("address")
@click.option("--port", type=click.IntRange(1, 65535), default=22, show_default=True)
@click.option(
    "--platform",
    type=click.Choice(PLATFORMS),
    default=None,
    help="What a network device speaks, if the defaults do not say it.",
)
@click.option("--user", default="", help="The login, if it is not that of the defaults.")
@click.option("--area", default="", help="The area that it belongs to.")
@click.option("--tags", default="", help="What runs there, with commas between: nfs,zfs.")
@_JSON_OPTION
@click.pass_obj
def enroll_host(
    get_policy_directory: GetPolicyDirectory,
    *,
    name: str,
    address: str,
    tags: str,
    as_json: bool,
    **rest: Any,
) -> None:
    """Show the key that a host has, and have the host wait for a second person.

    Reads the key from the network without logging in. The entry goes into enrolling.yaml, which
    counts for nothing until somebody else confirms it; without --area it is only shown. The entry
    is on standard output, all other words are on standard error. Exit status 5 if enrolling.yaml
    cannot be written: then what belongs into it is shown too.
    """
    from bot.hosts import enrolment, inventory_writer, pending_hosts
    from connectors.ssh_transport import fetch_host_key

    with _exit_on_errors():
        listed = tuple(tag for tag in tags.split(",") if tag)
        candidate = enrolment.HostCandidate(name, address, tags=listed, **rest)
        candidate.build_host(
            inventory_writer.PLACEHOLDER_KEY
        )  # before anything is asked, or says why not
        key = fetch_host_key(candidate)
        host = candidate.build_host(key)
    click.echo(enrolment.describe_shown_key(host), err=True)
    found = candidate.build_entry(key)
    _print_entries([found], as_json=as_json)
    objections = _list_objections(get_policy_directory, host)
    for objection in objections:
        click.echo(f"note: {objection}\n", err=True)
    if objections:
        _exit_with_error("so the host does not wait to be added, and nothing was written", FAILED)
    if not candidate.area:
        click.echo("Nothing was written: with --area, it would wait for a second person", err=True)
        return
    with _exit_on_errors():
        one = pending_hosts.PendingHost(
            requested_by=pending_hosts.get_local_user(),
            fingerprint=host.fingerprint,
            entry=found.fields,
        )
        directory = get_policy_directory()
        waiting = {**pending_hosts.list_pending_hosts(directory), name: one}
        try:
            pending_hosts.store_pending_hosts(directory, waiting)
        except OSError as trouble:
            click.echo(pending_hosts.render_pending_hosts({name: one}), err=True)
            _exit_with_error(
                enrolment.describe_unwritable_pending_file(
                    name, directory / pending_hosts.PENDING_HOSTS_FILE, trouble
                ),
                EXIT_NOT_WRITTEN,
            )
    click.echo(enrolment.describe_second_step(host), err=True)


@inventory_commands.command("confirm")
@click.argument("name", metavar="HOST")
@click.argument("fingerprint")
@_JSON_OPTION
@click.pass_obj
def confirm_host(
    get_policy_directory: GetPolicyDirectory, *, name: str, fingerprint: str, as_json: bool
) -> None:
    """Add a HOST that somebody else wants added, by the FINGERPRINT on the host's own console.

    Who is who is told by the logins to this machine, or to the two machines. Whoever can edit
    inventory.yaml can also add a host there alone: have such changes reviewed.

    You need write access to the policy directory. Without it, the command checks the entry in the
    same way, prints it for somebody who has write access, and ends with exit status 5.
    """
    from bot.hosts import enrolment, pending_hosts
    from bot.hosts.inventory_writer import InventoryEntry

    with _exit_on_errors():
        directory = get_policy_directory()
        read = enrolment.find_fingerprint(fingerprint)
        waiting = pending_hosts.list_pending_hosts(directory)
        here = pending_hosts.get_local_user()
        if name not in waiting:
            names = ", ".join(waiting) or "none"
            _exit_with_error(f"{name} does not wait to be added; what waits: {names}", NOT_FOUND)
        one = waiting.pop(name)
        host = enrolment.get_confirmable_host(name, one, fingerprint=read, confirmed_by=here)
        text = pending_hosts.add_host_to_inventory_text(directory, name, one, here)
        made = InventoryEntry(name, one.entry, (pending_hosts.describe_confirmation(one, here),))
        try:
            pending_hosts.write_inventory(directory, text)
        except OSError as trouble:
            _print_confirmed_host(host, made, written=False, as_json=as_json)
            _exit_with_error(
                enrolment.describe_unwritable_inventory(
                    name, directory / pending_hosts.INVENTORY_FILE, trouble
                ),
                EXIT_NOT_WRITTEN,
            )
        try:
            pending_hosts.store_pending_hosts(directory, waiting)
        except OSError as trouble:
            _exit_with_error(
                enrolment.describe_leftover_pending_host(
                    name, directory / pending_hosts.PENDING_HOSTS_FILE, trouble
                ),
                FAILED,
            )
    _print_confirmed_host(host, made, written=True, as_json=as_json)


def _print_confirmed_host(
    host: "Host", entry: "InventoryEntry", *, written: bool, as_json: bool
) -> None:
    from bot.hosts import enrolment, inventory_writer

    if as_json:
        told: dict[str, Any] = {"name": host.name, "fingerprint": host.fingerprint}
        told |= {"written": written, "entry": dict(entry.fields)}
        click.echo(json.dumps(told, ensure_ascii=False))
    elif written:
        click.echo(enrolment.describe_confirmed_host(host))
    else:
        click.echo(inventory_writer.render_entries([entry]), nl=False)


def _list_objections(get_policy_directory: GetPolicyDirectory, host: "Host") -> list[str]:
    from bot.hosts import enrolment
    from bot.model.text import escape_to_one_line
    from bot.policy import NoPolicyError
    from bot.policy.loader import load_policy

    try:
        return list(enrolment.list_objections(host, load_policy(get_policy_directory())))
    except NoPolicyError as trouble:
        return [
            f"nothing was compared with the policy directory: {escape_to_one_line(str(trouble))}"
        ]


@click.command("sudoers")
@click.argument("host")
@click.option(
    "--scripts",
    is_flag=True,
    help="A program for root's shell there that brings scripts and lines.",
)
@_JSON_OPTION
@click.pass_obj
def print_sudoers(
    get_policy_directory: GetPolicyDirectory, *, host: str, scripts: bool, as_json: bool
) -> None:
    """Print the sudoers lines that Keyturn's logins need on HOST.

    They let them do what the runbooks meant for HOST do as root, and no more. Long scripts must
    lie there as files of root's, which the lines then name:

    keyturn sudoers HOST --scripts | ssh root@HOST sh
    """
    from bot.hosts import sudo_rules
    from bot.hosts import sudo_rules as lines
    from bot.policy.loader import load_policy

    with _exit_on_errors():
        known = load_policy(get_policy_directory()).inventory[host]
        granted = lines.list_host_sudo_grants(known)
        written = (
            sudo_rules.format_install_program(known)
            if scripts
            else lines.format_sudoers(known, granted)
        )
        whose = lines.group_grants_by_login(known, granted)
    if known.platform != "linux":
        _exit_with_error(f"{host} is a network device ({known.platform}): it has no sudo", FAILED)
    if as_json:
        click.echo(json.dumps(lines.build_sudoers_data(known, whose), indent=2))
    elif not whose:
        _exit_with_error(
            f"Keyturn logs in to {host} as root: give it a login of its own first", FAILED
        )
    else:
        click.echo(written, nl=False)
    if scripts and not known.scripts:
        click.echo(f"note: then say `scripts: true` of {host} in inventory.yaml", err=True)


@contextmanager
def _show_progress(
    items: Iterable[Item], length: int, *, quiet: bool
) -> Generator[Iterable[Item]]:
    """Show a bar on a terminal, and nothing elsewhere, nor where a program is answered."""
    if quiet or not sys.stderr.isatty():
        yield items
        return
    with click.progressbar(items, length=length, label="asking", file=sys.stderr) as shown:
        yield shown


@contextmanager
def _exit_on_errors() -> Generator[None]:
    """Turn what a person can do something about into one line on standard error."""
    from bot.hosts.enrolment import InvalidCandidateError, InvalidFingerprintError
    from bot.model.text import escape_to_one_line
    from bot.policy import NoPolicyError
    from connectors.errors import HostError, UnknownHostError

    try:
        yield
    except UnknownHostError as trouble:
        _exit_with_error(escape_to_one_line(str(trouble)), NOT_FOUND)
    except (InvalidCandidateError, InvalidFingerprintError) as trouble:
        _exit_with_error(escape_to_one_line(str(trouble)), NOT_UNDERSTOOD)
    except OSError as trouble:
        where = f"{trouble.filename}: " if trouble.filename else ""
        why = trouble.strerror or str(trouble)
        _exit_with_error(
            escape_to_one_line(f"{where}{why}: use a login that has access to it"), FAILED
        )
    except (NoPolicyError, HostError, ValueError) as trouble:
        _exit_with_error(escape_to_one_line(str(trouble)), FAILED)


def _exit_with_error(message: str, status: int) -> NoReturn:
    click.echo(f"keyturn: {message}", err=True)
    sys.exit(status)
