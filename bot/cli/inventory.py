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
    from bot.hosts.inventory_writer import Entry
    from connectors.inventory import Host

FAILED, NOT_UNDERSTOOD, NOT_FOUND = 1, 2, 3
# The host still waits: a file could not be written, and what belongs into it was printed.
NOT_WRITTEN = 5
# Those of the inventory, which is not loaded for words alone.
PLATFORMS = ("linux", "cisco_ios", "dell_powerconnect", "frr")

# The context's object: asks the settings for the policy directory when a command needs it.
PolicyPath = Callable[[], Path]
T = TypeVar("T")
_JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")


@click.group()
def inventory() -> None:
    """Look after the hosts: are they well, which are missing?"""


@inventory.command("check")
@click.argument("hosts", nargs=-1, metavar="[HOST]…")
@_JSON
@click.pass_obj
def check(policy: PolicyPath, *, hosts: tuple[str, ...], as_json: bool) -> None:
    """Log in everywhere, or on each HOST, and say what stands in the way.

    Changes nothing. Exit status 1 if any host is not well.
    """
    from bot.cli import inventory_format
    from bot.hosts.live_check import check_hosts
    from bot.policy.loader import load_policy
    from connectors.fleet import Fleet
    from connectors.ssh_pool import SshPool

    with _plainly():
        directory = policy()
        known = load_policy(directory).inventory
        names = [known[name].name for name in dict.fromkeys(hosts)] or list(known.hosts)
    fleet = Fleet(known, SshPool(directory))
    try:
        with _progress(check_hosts(fleet, names), len(names), quiet=as_json) as arriving:
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
    sys.exit(0 if all(each.well for each in ordered) else FAILED)


@inventory.group("import")
def take_over() -> None:
    """Turn another program's list of hosts into entries for inventory.yaml.

    The entries are printed, with a note above each host of what it lacks; nothing is written and
    nobody is asked.
    """


_KNOWN = click.option(
    "--known-hosts",
    "known",
    multiple=True,
    type=click.File(encoding="utf-8", errors="replace"),
    help="Take the hosts' keys from this file; hashed names are found too. May be repeated.",
)
_AREA = click.option("--area", default="", help="The area that all of them belong to.")


@take_over.command("ansible")
@click.argument("file", type=click.File(encoding="utf-8"))
@_KNOWN
@_AREA
@_JSON
def from_ansible(*, file: IO[str], known: tuple[IO[str], ...], area: str, as_json: bool) -> None:
    """Read what `ansible-inventory --list` prints of an inventory; - is standard input.

    Groups become tags. Ansible itself reads the inventory, its variables and plugins, where it is
    installed:

    ansible-inventory -i hosts.ini --list | keyturn inventory import ansible -
    """
    from bot.hosts import ansible

    with _plainly():
        _print_entries(ansible.parse_inventory(file.read()), known, area, as_json=as_json)


@take_over.command("ssh-config")
@click.argument("file", type=click.File(encoding="utf-8"))
@_KNOWN
@_AREA
@_JSON
def from_ssh_config(
    *, file: IO[str], known: tuple[IO[str], ...], area: str, as_json: bool
) -> None:
    """Read the configuration of an SSH client, such as ~/.ssh/config; - is standard input."""
    from bot.hosts import ssh_config

    with _plainly():
        _print_entries(ssh_config.parse_ssh_config(file.read()), known, area, as_json=as_json)


def _print_entries(
    findings: "ImportedHosts", known: Sequence[IO[str]], area: str, *, as_json: bool
) -> None:
    from bot.hosts import inventory_writer, known_hosts
    from bot.model.text import escape_to_one_line

    for remark in findings.remarks:
        click.echo(escape_to_one_line(remark), err=True)
    if not findings.hosts:
        _stop("there is no host in this file that has a name of its own", FAILED)
    lines = [line for file in known for line in known_hosts.parse_known_hosts(file.read())]
    made = inventory_writer.build_entries(findings.hosts, lines, area=area)
    _print_as_asked(made, as_json=as_json)
    whole = sum(each.whole for each in made)
    click.echo(
        f"{len(made)} hosts: {whole} whole, {len(made) - whole} lacking something", err=True
    )


def _print_as_asked(made: "Sequence[Entry]", *, as_json: bool) -> None:
    from bot.hosts import inventory_writer

    if as_json:
        click.echo(
            json.dumps(inventory_writer.entries_to_data(made), indent=2, ensure_ascii=False)
        )
    else:
        click.echo(inventory_writer.entries_to_yaml(made), nl=False)


@inventory.command("enroll")
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
@_JSON
@click.pass_obj
def enroll(
    policy: PolicyPath, *, name: str, address: str, tags: str, as_json: bool, **rest: Any
) -> None:
    """Show the key that a host has, and have the host wait for a second person.

    Reads the key from the network without logging in. The entry goes into enrolling.yaml, which
    counts for nothing until somebody else confirms it; without --area it is only shown. The entry
    is on standard output, all other words are on standard error. Exit status 5 if enrolling.yaml
    cannot be written: then what belongs into it is shown too.
    """
    from bot.hosts import enrolment, inventory_writer, pending_hosts
    from connectors.ssh_transport import fetch_host_key

    with _plainly():
        listed = tuple(tag for tag in tags.split(",") if tag)
        candidate = enrolment.Candidate(name, address, tags=listed, **rest)
        candidate.host(inventory_writer.SOME_KEY)  # before anything is asked, or says why not
        key = fetch_host_key(candidate)
        host = candidate.host(key)
    click.echo(enrolment.describe_shown_key(host), err=True)
    found = candidate.entry(key)
    _print_as_asked([found], as_json=as_json)
    objections = _objections(policy, host)
    for objection in objections:
        click.echo(f"note: {objection}\n", err=True)
    if objections:
        _stop("so the host does not wait to be added, and nothing was written", FAILED)
    if not candidate.area:
        click.echo("Nothing was written: with --area, it would wait for a second person", err=True)
        return
    with _plainly():
        one = pending_hosts.PendingHost(
            asked_by=pending_hosts.get_local_user(),
            fingerprint=host.fingerprint,
            entry=found.fields,
        )
        directory = policy()
        waiting = {**pending_hosts.list_pending_hosts(directory), name: one}
        try:
            pending_hosts.store_pending_hosts(directory, waiting)
        except OSError as trouble:
            click.echo(pending_hosts.render({name: one}), err=True)
            _stop(
                enrolment.not_waiting(name, directory / pending_hosts.FILE, trouble), NOT_WRITTEN
            )
    click.echo(enrolment.describe_second_step(host), err=True)


@inventory.command("confirm")
@click.argument("name", metavar="HOST")
@click.argument("fingerprint")
@_JSON
@click.pass_obj
def confirm(policy: PolicyPath, *, name: str, fingerprint: str, as_json: bool) -> None:
    """Add a HOST that somebody else wants added, by the FINGERPRINT on the host's own console.

    Who is who is told by the logins to this machine, or to the two machines. Whoever can edit
    inventory.yaml can also add a host there alone: have such changes reviewed.

    You need write access to the policy directory. Without it, the command checks the entry in the
    same way, prints it for somebody who has write access, and ends with exit status 5.
    """
    from bot.hosts import enrolment, pending_hosts
    from bot.hosts.inventory_writer import Entry

    with _plainly():
        directory = policy()
        read = enrolment.find_fingerprint(fingerprint)
        waiting = pending_hosts.list_pending_hosts(directory)
        here = pending_hosts.get_local_user()
        if name not in waiting:
            names = ", ".join(waiting) or "none"
            _stop(f"{name} does not wait to be added; what waits: {names}", NOT_FOUND)
        one = waiting.pop(name)
        host = enrolment.get_confirmable(name, one, read=read, by=here)
        text = pending_hosts.add_to_text(directory, name, one, here)
        made = Entry(name, one.entry, (pending_hosts.describe_people(one, here),))
        try:
            pending_hosts.write_inventory(directory, text)
        except OSError as trouble:
            _print_confirmed(host, made, written=False, as_json=as_json)
            _stop(
                enrolment.not_added(name, directory / pending_hosts.INVENTORY, trouble),
                NOT_WRITTEN,
            )
        try:
            pending_hosts.store_pending_hosts(directory, waiting)
        except OSError as trouble:
            _stop(enrolment.still_waiting(name, directory / pending_hosts.FILE, trouble), FAILED)
    _print_confirmed(host, made, written=True, as_json=as_json)


def _print_confirmed(host: "Host", made: "Entry", *, written: bool, as_json: bool) -> None:
    from bot.hosts import enrolment, inventory_writer

    if as_json:
        told: dict[str, Any] = {"name": host.name, "fingerprint": host.fingerprint}
        told |= {"written": written, "entry": dict(made.fields)}
        click.echo(json.dumps(told, ensure_ascii=False))
    elif written:
        click.echo(enrolment.describe_confirmed(host))
    else:
        click.echo(inventory_writer.entries_to_yaml([made]), nl=False)


def _objections(policy: PolicyPath, host: "Host") -> list[str]:
    from bot.hosts import enrolment
    from bot.model.text import escape_to_one_line
    from bot.policy import NoPolicy
    from bot.policy.loader import load_policy

    try:
        return list(enrolment.list_objections(host, load_policy(policy())))
    except NoPolicy as trouble:
        return [
            f"nothing was compared with the policy directory: {escape_to_one_line(str(trouble))}"
        ]


@click.command()
@click.argument("host")
@click.option(
    "--scripts",
    is_flag=True,
    help="A program for root's shell there that brings scripts and lines.",
)
@_JSON
@click.pass_obj
def sudoers(policy: PolicyPath, *, host: str, scripts: bool, as_json: bool) -> None:
    """Print the sudoers lines that Keyturn's logins need on HOST.

    They let them do what the runbooks meant for HOST do as root, and no more. Long scripts must
    lie there as files of root's, which the lines then name:

    keyturn sudoers HOST --scripts | ssh root@HOST sh
    """
    from bot.hosts import sudo_rules
    from bot.hosts import sudo_rules as lines
    from bot.policy.loader import load_policy

    with _plainly():
        known = load_policy(policy()).inventory[host]
        granted = lines.list_grants_on(known)
        written = (
            sudo_rules.format_install_program(known)
            if scripts
            else lines.format_sudoers(known, granted)
        )
        whose = lines.rules_by_login(known, granted)
    if known.platform != "linux":
        _stop(f"{host} is a network device ({known.platform}): it has no sudo", FAILED)
    if as_json:
        click.echo(json.dumps(lines.sudoers_to_data(known, whose), indent=2))
    elif not whose:
        _stop(f"Keyturn logs in to {host} as root: give it a login of its own first", FAILED)
    else:
        click.echo(written, nl=False)
    if scripts and not known.scripts:
        click.echo(f"note: then say `scripts: true` of {host} in inventory.yaml", err=True)


@contextmanager
def _progress(arriving: Iterable[T], length: int, *, quiet: bool) -> Generator[Iterable[T]]:
    """Show a bar on a terminal, and nothing elsewhere, nor where a program is answered."""
    if quiet or not sys.stderr.isatty():
        yield arriving
        return
    with click.progressbar(arriving, length=length, label="asking", file=sys.stderr) as shown:
        yield shown


@contextmanager
def _plainly() -> Generator[None]:
    """Turn what a person can do something about into one line on standard error."""
    from bot.hosts.enrolment import NoFingerprint, NotAddable
    from bot.model.text import escape_to_one_line
    from bot.policy import NoPolicy
    from connectors.errors import HostError, UnknownHostError

    try:
        yield
    except UnknownHostError as trouble:
        _stop(escape_to_one_line(str(trouble)), NOT_FOUND)
    except (NotAddable, NoFingerprint) as trouble:
        _stop(escape_to_one_line(str(trouble)), NOT_UNDERSTOOD)
    except OSError as trouble:
        where = f"{trouble.filename}: " if trouble.filename else ""
        why = trouble.strerror or str(trouble)
        _stop(escape_to_one_line(f"{where}{why}: use a login that has access to it"), FAILED)
    except (NoPolicy, HostError, ValueError) as trouble:
        _stop(escape_to_one_line(str(trouble)), FAILED)


def _stop(message: str, status: int) -> NoReturn:
    click.echo(f"keyturn: {message}", err=True)
    sys.exit(status)
