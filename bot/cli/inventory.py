"""`keyturn inventory …` and `keyturn sudoers`: check, import and add hosts."""

import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

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
from bot.cli.options import json_option, pass_environment
from bot.cli.progress import show_progress
from bot.cli.sections import CommandGroup
from bot.cli.terminal import print_json, print_result

if TYPE_CHECKING:
    from bot.hosts.imported_host import ImportedHosts
    from bot.hosts.inventory_writer import InventoryEntry
    from bot.hosts.live_check import HostCheck
    from bot.hosts.pending_hosts import PendingHost
    from connectors.inventory import Host

# The host is still pending: a file could not be written, and its content was printed.
EXIT_NOT_WRITTEN = 5
# As in connectors.inventory, which is slow to import for the help.
PLATFORMS = (
    *("linux", "cisco_ios", "dell_powerconnect", "frr"),
    *("arista_eos", "juniper_junos", "hp_procurve"),
)

_CHECK_HEADINGS = ("HOST", "ADDRESS", "REACHABLE", "KEY", "LOGIN", "ANSWERS", "ROOT")


@click.group("inventory", cls=CommandGroup)
def inventory_commands() -> None:
    """Check, import and add hosts."""


@inventory_commands.command("check")
@click.argument("hosts", nargs=-1, metavar="[HOST]…")
@pass_environment
def check_inventory(environment: CommandEnvironment, *, hosts: tuple[str, ...]) -> None:
    """Log in to every host, or to each HOST, and its BMC; print problems with their fixes.

    Changes nothing. Exit status 1 if a host has a problem.

    For example: keyturn inventory check lb1 lb2
    """
    from bot.hosts.live_check import HostCheck, check_hosts
    from bot.policy.loader import load_policy
    from connectors.fleet import Fleet
    from connectors.ssh_pool import SshPool
    from runbooks import load_usable_catalogue

    with exit_on_errors():
        directory = environment.settings.policy
        known = load_policy(directory).inventory
        names = [known[name].name for name in dict.fromkeys(hosts)] or list(known.hosts)
    runbooks, problem = load_usable_catalogue()
    fleet = Fleet(known, SshPool(directory))
    try:
        found: dict[str, HostCheck] = {}
        with show_progress()("checking", lambda: len(names)) as advance:
            for each in check_hosts(fleet, names, runbooks):
                found[each.host] = each
                advance(1)
    finally:
        fleet.close()
    ordered = [found[name] for name in names]
    print_result(
        [vars(each) | {"healthy": each.is_healthy} for each in ordered],
        format_checks(ordered) if ordered else [],
        empty_message="No hosts.",
        indent=2,
    )
    if problem:
        exit_with_error(f"not checked for your own runbooks: {problem}", FAILED)
    sys.exit(0 if all(each.is_healthy for each in ordered) else FAILED)


@inventory_commands.group("import", cls=CommandGroup)
def import_commands() -> None:
    """Print inventory.yaml entries for the hosts of another program.

    A note above each host says what its entry lacks. Writes nothing and contacts no host.
    """


# Lazy files are opened when they are read: if another argument is wrong, none stays open.
_KNOWN_HOSTS_OPTION = click.option(
    "--known-hosts",
    "known",
    multiple=True,
    type=click.File(encoding="utf-8", errors="replace", lazy=True),
    help="File with host keys, also with hashed names; repeatable.",
)
_AREA_OPTION = click.option("--area", default="", help="Area of all these hosts.")


@import_commands.command("ansible")
@click.argument("file", type=click.File(encoding="utf-8", lazy=True))
@_KNOWN_HOSTS_OPTION
@_AREA_OPTION
@json_option
def import_from_ansible(*, file: IO[str], known: tuple[IO[str], ...], area: str) -> None:
    """Import the output of `ansible-inventory --list`; - is standard input.

    Groups become tags. Run it where Ansible is installed:

    ansible-inventory -i hosts.ini --list | keyturn inventory import ansible -
    """
    from bot.hosts import ansible

    with exit_on_errors():
        _print_imported_hosts(ansible.parse_ansible_inventory(file.read()), known, area)


@import_commands.command("ssh-config")
@click.argument("file", type=click.File(encoding="utf-8", lazy=True))
@_KNOWN_HOSTS_OPTION
@_AREA_OPTION
@json_option
def import_from_ssh_config(*, file: IO[str], known: tuple[IO[str], ...], area: str) -> None:
    """Import an SSH client configuration such as ~/.ssh/config; - is standard input.

    For example: keyturn inventory import ssh-config ~/.ssh/config --area web
    """
    from bot.hosts import ssh_config

    with exit_on_errors():
        _print_imported_hosts(ssh_config.parse_ssh_config(file.read()), known, area)


def _print_imported_hosts(
    imported: "ImportedHosts", known_hosts_files: Sequence[IO[str]], area: str
) -> None:
    from bot.hosts import inventory_writer, known_hosts
    from bot.model.text import escape_to_one_line, format_count

    for remark in imported.remarks:
        click.echo(escape_to_one_line(remark), err=True)
    if not imported.hosts:
        exit_with_error("the file contains no named hosts", NOT_UNDERSTOOD)
    lines = [
        line for file in known_hosts_files for line in known_hosts.parse_known_hosts(file.read())
    ]
    entries = inventory_writer.build_entries(imported.hosts, lines, area=area)
    _print_entries(entries)
    complete = sum(entry.is_complete for entry in entries)
    counts = f"{complete} complete, {len(entries) - complete} incomplete"
    click.echo(f"{format_count(len(entries), 'host')}: {counts}", err=True)


def _print_entries(entries: "Sequence[InventoryEntry]") -> None:
    from bot.hosts import inventory_writer

    if wants_json():
        print_json(inventory_writer.build_entries_data(entries), indent=2)
    else:
        click.echo(inventory_writer.render_entries(entries), nl=False)


@inventory_commands.command("enrol")
@click.argument("name")
@click.argument("address", metavar="ADDRESS[:PORT]")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=None, help="Port of SSH. Default: 22."
)
@click.option(
    "--platform",
    type=click.Choice(PLATFORMS),
    metavar="PLATFORM",
    default=None,
    help=f"Platform of a network device: {', '.join(PLATFORMS)}. Default: from inventory.yaml.",
)
@click.option("--user", default="", help="Login name. Default: from inventory.yaml.")
@click.option("--area", default="", help="Area of the host.")
@click.option("--tags", default="", help="Tags, separated by commas: nfs,zfs.")
@click.option(
    "--alone",
    is_flag=True,
    help="Confirm it yourself by the fingerprint on its console, if its area has one owner.",
)
@pass_environment
def enrol_host(
    environment: CommandEnvironment,
    *,
    name: str,
    address: str,
    port: int | None,
    tags: str,
    alone: bool,
    **fields: Any,
) -> None:
    """Show the host key of ADDRESS, and add NAME as a pending host.

    Reads the key from the network without logging in. With --area, the entry goes into
    enrolling.yaml, which has no effect until another person confirms the host. The entry is
    printed to standard output, everything else to standard error. Exit status 5 if enrolling.yaml
    cannot be written; then its content is printed too.

    With --alone, for an evaluation: type the fingerprint that the console of the host shows. The
    entry goes into inventory.yaml, and says that one person confirmed it.

    For example: keyturn inventory enrol web2 web2.example.com --area web --tags nginx
    """
    from bot.hosts import enrolment, inventory_writer, pending_hosts
    from connectors.ssh_transport import fetch_host_key

    with exit_on_errors():
        tag_names = tuple(tag for tag in tags.split(",") if tag)
        host_address, typed_port = enrolment.split_address(address)
        if None not in {port, typed_port}:
            exit_with_error("give the port once: as ADDRESS:PORT or --port", NOT_UNDERSTOOD)
        candidate = enrolment.HostCandidate(
            name, host_address, port or typed_port or 22, tags=tag_names, **fields
        )
        candidate.build_host(
            inventory_writer.PLACEHOLDER_KEY
        )  # validates before contacting the host
        key = fetch_host_key(candidate)
        host = candidate.build_host(key)
    click.echo(enrolment.describe_shown_key(host), err=True)
    entry = candidate.build_entry(key)
    _print_entries([entry])
    objections = _list_objections(environment, host)
    for objection in objections:
        click.echo(f"note: {objection}\n", err=True)
    if objections:
        exit_with_error(
            "nothing was written: fix what the notes say, then enrol the host again", FAILED
        )
    if not candidate.area:
        click.echo("Nothing was written. Add --area to add it as a pending host.", err=True)
        return
    with exit_on_errors():
        pending_host = pending_hosts.PendingHost(
            requested_by=pending_hosts.get_local_user(),
            fingerprint=host.fingerprint,
            entry=entry.fields,
        )
        directory = environment.settings.policy
        if alone:
            _add_host_alone(environment, name, pending_host)
            return
        waiting = {**pending_hosts.list_pending_hosts(directory), name: pending_host}
        try:
            pending_hosts.store_pending_hosts(directory, waiting)
        except OSError as error:
            click.echo(pending_hosts.render_pending_hosts({name: pending_host}), err=True)
            exit_with_error(
                enrolment.describe_unwritable_pending_file(
                    name, directory / pending_hosts.PENDING_HOSTS_FILE, error
                ),
                EXIT_NOT_WRITTEN,
            )
    click.echo(enrolment.describe_second_step(host), err=True)


def _add_host_alone(
    environment: CommandEnvironment, name: str, pending_host: "PendingHost"
) -> None:
    """Add a host that the person who enrols it confirms too, and record that."""
    from bot.audit import change_log, events
    from bot.hosts import enrolment, pending_hosts
    from bot.policy.loader import load_policy

    directory = environment.settings.policy
    area = load_policy(directory).organisation.areas[str(pending_host.entry["area"])]
    if len(area.owners) > 1:
        exit_with_error(
            f"{area.title} has {len(area.owners)} owners ({', '.join(area.owners)}): enrol "
            f"{name} without --alone, so that another person confirms it",
            REFUSED,
        )
    typed = click.prompt(f"Fingerprint that the console of {name} shows", err=True)
    host = enrolment.get_confirmable_host(
        name, pending_host, fingerprint=enrolment.find_fingerprint(typed), confirmed_by=None
    )
    user = pending_host.requested_by
    text = pending_hosts.add_host_to_inventory_text(directory, name, pending_host, user)
    if environment.has_database():
        with environment.open_database() as database, database.transaction() as tx:
            change_log.append_entry(
                tx,
                events.HostEnrolledAlone(fingerprint=host.fingerprint, login=user.login),
                host=name,
            )
    pending_hosts.write_inventory(directory, text)
    click.echo(f"{name} is in the inventory with the key {host.fingerprint}.", err=True)


@inventory_commands.command("confirm")
@click.argument("name", metavar="HOST")
@click.argument("fingerprint")
@pass_environment
def confirm_host(environment: CommandEnvironment, *, name: str, fingerprint: str) -> None:
    """Confirm a pending HOST by the FINGERPRINT that its own console shows.

    A different user than the one who enrolled it must confirm it, by the login on this machine.
    People who can edit inventory.yaml can add a host without this: review such changes.

    Needs write access to the policy directory. Without it, the command checks the entry in the
    same way, prints it for someone who has write access, and exits with status 5.

    For example: keyturn inventory confirm web2 SHA256:n7dnLm1mOlH1pVBGCpMRuOyCBIXk0eUdBqyvN8K5F5k
    """
    from bot.hosts import enrolment, pending_hosts
    from bot.hosts.inventory_writer import InventoryEntry

    with exit_on_errors():
        directory = environment.settings.policy
        typed_fingerprint = enrolment.find_fingerprint(fingerprint)
        pending = pending_hosts.list_pending_hosts(directory)
        user = pending_hosts.get_local_user()
        if name not in pending:
            names = ", ".join(pending) or "none"
            exit_with_error(f"no pending host {name}; pending hosts: {names}", NOT_FOUND)
        candidate = pending.pop(name)
        host = enrolment.get_confirmable_host(
            name, candidate, fingerprint=typed_fingerprint, confirmed_by=user
        )
        text = pending_hosts.add_host_to_inventory_text(directory, name, candidate, user)
        confirmation = pending_hosts.describe_confirmation(candidate, user)
        entry = InventoryEntry(name, candidate.entry, (confirmation,))
        try:
            pending_hosts.write_inventory(directory, text)
        except OSError as error:
            _print_confirmed_host(host, entry, written=False)
            exit_with_error(
                enrolment.describe_unwritable_inventory(
                    name, directory / pending_hosts.INVENTORY_FILE, error
                ),
                EXIT_NOT_WRITTEN,
            )
        try:
            pending_hosts.store_pending_hosts(directory, pending)
        except OSError as error:
            exit_with_error(
                enrolment.describe_leftover_pending_host(
                    name, directory / pending_hosts.PENDING_HOSTS_FILE, error
                ),
                FAILED,
            )
    _print_confirmed_host(host, entry, written=True)


def _print_confirmed_host(host: "Host", entry: "InventoryEntry", *, written: bool) -> None:
    from bot.hosts import enrolment, inventory_writer

    if wants_json():
        data: dict[str, Any] = {"name": host.name, "fingerprint": host.fingerprint}
        data |= {"written": written, "entry": dict(entry.fields)}
        print_json(data)
    elif written:
        click.echo(enrolment.describe_confirmed_host(host))
    else:
        click.echo(inventory_writer.render_entries([entry]), nl=False)


def _list_objections(environment: CommandEnvironment, host: "Host") -> list[str]:
    from bot.hosts import enrolment
    from bot.model.text import escape_to_one_line
    from bot.policy import NoPolicyError
    from bot.policy.loader import load_policy

    try:
        return list(enrolment.list_objections(host, load_policy(environment.settings.policy)))
    except NoPolicyError as error:
        return [f"cannot compare with the policy directory: {escape_to_one_line(str(error))}"]


@click.command("sudoers")
@click.argument("host")
@click.option(
    "--scripts",
    is_flag=True,
    help="Print a shell script for root that installs the lines and long scripts.",
)
@pass_environment
def print_sudoers(environment: CommandEnvironment, *, host: str, scripts: bool) -> None:
    """Print the sudoers lines that Keyturn's logins need on HOST.

    They allow exactly what the runbooks for HOST do as root. Scripts that are too long for sudo
    must be installed as files of root:

    keyturn sudoers HOST --scripts | ssh root@HOST sh
    """
    from bot.hosts import sudo_rules
    from bot.policy.loader import load_policy

    with exit_on_errors():
        known = load_policy(environment.settings.policy).inventory[host]
        grants = sudo_rules.list_host_sudo_grants(known)
        text = (
            sudo_rules.format_install_program(known)
            if scripts
            else sudo_rules.format_sudoers(known, grants)
        )
        grants_by_login = sudo_rules.group_grants_by_login(known, grants)
    if known.platform != "linux":
        exit_with_error(f"{host} is a network device ({known.platform}): it has no sudo", FAILED)
    if wants_json():
        print_json(sudo_rules.build_sudoers_data(known, grants_by_login), indent=2)
    elif not grants_by_login:
        exit_with_error(
            f"Keyturn logs in to {host} as root: create a separate login first", FAILED
        )
    else:
        click.echo(text, nl=False)
    if scripts and not known.scripts:
        click.echo(f"note: then set `scripts: true` for {host} in inventory.yaml", err=True)


@click.command("host-files")
@click.argument("host")
@pass_environment
def print_host_files(environment: CommandEnvironment, *, host: str) -> None:
    """Print a shell script for root that enrols HOST: it then checks itself who signed a change.

    The script installs the program that checks, whose signatures count, how many a command needs,
    and sudoers lines that permit nothing else. Read it, then:

    keyturn host-files HOST | ssh root@HOST sh
    """
    from bot.hosts.host_files import build_enrolment
    from bot.policy.loader import load_policy

    settings = environment.settings
    with exit_on_errors():
        policy = load_policy(settings.policy)
        known = policy.inventory[host]
        program = build_enrolment(policy, known, settings.signing_page or settings.address)
    click.echo(program, nl=False)
    if not known.signed:
        click.echo(f"note: then set `signed: true` for {host} in inventory.yaml", err=True)


def format_checks(checks: "Sequence[HostCheck]") -> list[str]:
    """Return a table, and below it each problem with its fix."""
    from bot.model.text import align_rows

    failed = sum(not each.is_healthy for each in checks)
    problems = [_format_problem(each) for each in checks if each.error or each.advice]
    return [
        *align_rows([_CHECK_HEADINGS, *map(_build_check_row, checks)]),
        *(["", *problems] if problems else []),
        "",
        f"{failed} of {len(checks)} hosts failed."
        if failed
        else "The host is healthy."
        if len(checks) == 1
        else f"All {len(checks)} hosts are healthy.",
    ]


def _format_problem(check: "HostCheck") -> str:
    from bot.model.text import escape_to_one_line
    from connectors.errors import prefix_host

    return prefix_host(check.host, escape_to_one_line(check.error or check.advice))


def _build_check_row(check: "HostCheck") -> tuple[str, ...]:
    words = {None: "?", True: "yes", False: "NO"}
    results = (words[each] for each in (check.reachable, check.key, check.login, check.answers))
    root = "?" if check.root is None else check.root or "-"
    return (check.host, check.address, *results, root)
