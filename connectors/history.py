"""History of a host: logins, boots, sudo's log, and packages. No I/O.

Each source has its own query, because hosts differ in which they have and who may read them.
Formats: last(1) with times in ISO 8601, journalctl(1) `short-unix`, sudo's log entries as in
sudoers(5), dpkg(1)'s log, rpm(8)'s query format.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern

EventKind = Literal["login", "start", "sudo", "package", "keyturn"]


@dataclass(frozen=True)
class HostEvent:
    """One event on a host."""

    time: datetime
    kind: EventKind
    account: str
    """The account, "" where the source does not have it."""
    description: str
    run: int = 0
    """The number of the Keyturn run, 0 for any other event."""


@dataclass(frozen=True)
class RunSpan:
    """A time in which a run may have used the host, by Keyturn's clock."""

    started_at: datetime
    ended_at: datetime
    run: int
    requester: str
    description: str
    """The run's command."""


@dataclass(frozen=True)
class KeyturnHistory:
    """Keyturn's own runs on a host."""

    events: tuple[HostEvent, ...] = ()
    accounts: frozenset[str] = frozenset()
    """The logins that only Keyturn uses."""
    spans: tuple[RunSpan, ...] = ()
    """The times of every run, also of read-only ones."""
    clock: datetime | None = None
    """Keyturn's clock; None if its log was not read."""


Events = Rows[HostEvent]

_NO_LAST = Hint(
    r"last: .*not found|last.*No such file",
    "this host has no `last`, as Debian since 13: install wtmpdb and libpam-wtmpdb",
)
_NO_JOURNAL = "No journal files were (found|opened)"
_NO_LOG = Hint(
    rf"{_NO_JOURNAL}|journalctl: .*not found",
    "this host keeps no journal, and Keyturn reads no other log of sudo",
)

_PACKAGES = load_script("package-history", argument_count=0)

_LOGIN = re.compile(r"(\S+)\s+(.+?)\s+(\d{4}-\d\d-\d\dT[\d:]+[+-][\d:]+)(?:\s+.*)?")
_JOURNAL_LINE = re.compile(r"(\d+\.\d+) \S+ \S+: (.*)")
_ENTRY = re.compile(r"(\d+\.\d+) \S+ sudo(?:\[\d+\])?: *(\S+) : (.*)")
_DPKG = re.compile(r"([\d-]+ [\d:]+) (install|upgrade|remove|purge) (\S+) (\S+) (\S+)")
_RPM = re.compile(r"(\d+) (\S+) (\S+)")


_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class KeyturnHistoryQuery(Query[KeyturnHistory]):
    """A query of Keyturn's own log: Keyturn answers it on behalf of the host."""

    since: datetime = _NEVER


def query_keyturn(since: datetime) -> KeyturnHistoryQuery:
    """Query what was done through Keyturn. On a host it runs `true` and returns nothing."""
    return KeyturnHistoryQuery(Shell(("true",)), lambda _: KeyturnHistory(), since=since)


def query_logins(since: datetime) -> Query[Events]:
    """Query logins and boots. It requires util-linux 2.24 or newer."""
    time = since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    words = ("env", "TZ=UTC", "last", "-w", "--time-format", "iso", "-s", time)
    shell = Shell(words, hints=(_NO_LAST,))
    return Query(shell, lambda answer: _filter_since(parse_logins(answer), since))


_LOGIN_OPTIONS = (
    *("--no-pager", "-t", "sshd", "-t", "sshd-session", "-t", "login", "-t", "kernel"),
    *("-g", "^(Accepted |Linux version |(ROOT )?LOGIN ON )", "--since"),
)


def query_journal_logins(since: datetime) -> Query[Events]:
    """Query logins and boots from the journal, for hosts without `last`."""
    time = f"@{int(since.timestamp())}"
    words = ("journalctl", *_LOGIN_OPTIONS, time, "-o", "short-unix")
    shell = Shell(words, root=True, error_pattern=_NO_JOURNAL, hints=(_NO_LOG,))
    # Some versions exit with 1 where no line matches.
    return Query(
        shell,
        lambda answer: _filter_since(parse_journal_logins(answer), since),
        frozenset({0, 1}),
    )


_SUDO_OPTIONS = ("--no-pager", "-t", "sudo", "--since")


def query_sudo(since: datetime) -> Query[Events]:
    """Query what sudo ran and refused. On some hosts only root can read it."""
    time = f"@{int(since.timestamp())}"
    words = ("journalctl", *_SUDO_OPTIONS, time, "-o", "short-unix")
    # journalctl also exits with 0 where it finds no journal.
    shell = Shell(words, root=True, error_pattern=_NO_JOURNAL, hints=(_NO_LOG,))
    return Query(shell, lambda answer: _filter_since(parse_sudo(answer), since))


def query_packages(since: datetime) -> Query[Events]:
    """Query package changes; with rpm, only installations of packages that are still there."""
    shell = Shell((_PACKAGES,), deadline=60)
    return Query(shell, lambda answer: _filter_since(parse_packages(answer), since))


def _filter_since(events: Events, since: datetime) -> Events:
    return Rows((event for event in events if event.time >= since), events.odd)


def parse_logins(answer: str) -> Events:
    """Return logins and boots. The last line has the date on which the file begins."""
    body, _, foot = answer.rstrip("\n").rpartition("\n\n")
    if not re.search(r"(?m)^\S* ?begins ", foot or answer):
        raise ParseError(f"last printed {answer[:200]!r} instead of logins")
    return _parse_lines(body.strip("\n"), _parse_login)


def parse_journal_logins(answer: str) -> Events:
    """Return logins by SSH and on consoles, and boots, from the journal."""
    if not answer.strip():
        raise ParseError("journalctl printed nothing, not even that there are no entries")
    return _parse_lines(answer, _parse_journal_login)


def _parse_journal_login(line: str) -> HostEvent | None:
    if line.startswith("-- "):
        return None
    found = _JOURNAL_LINE.fullmatch(line)
    if found is None:
        raise ParseError("it is no line of the journal")
    time, text = datetime.fromtimestamp(float(found[1]), UTC), found[2]
    if text.startswith("Linux version "):
        return HostEvent(time, "start", "", "the host started")
    if ssh := re.match(r"Accepted (\S+) for (\S+) from (\S+) ", text):
        return HostEvent(time, "login", ssh[2], f"logged in by SSH from {ssh[3]} ({ssh[1]})")
    if console := re.match(r"(ROOT )?LOGIN ON (\S+)(?: BY (\S+))?", text):
        return HostEvent(time, "login", console[3] or "root", f"logged in on {console[2]}")
    raise ParseError("it is no login")


def _parse_login(line: str) -> HostEvent | None:
    found = _LOGIN.fullmatch(line)
    if found is None:
        raise ParseError("it is no login")
    who, where, at = found.groups()
    time = datetime.fromisoformat(at).astimezone(UTC)
    if who in ("runlevel", "shutdown"):
        return None
    if who == "reboot":
        return HostEvent(time, "start", "", "the host started")
    return HostEvent(time, "login", who, f"logged in on {' '.join(where.split())}")


def parse_sudo(answer: str) -> Events:
    """Return the commands that people ran or tried to run. PAM's lines are skipped."""
    if not answer.strip():
        raise ParseError("journalctl printed nothing, not even that there are no entries")
    return _parse_lines(answer, _parse_sudo_line)


def _parse_sudo_line(line: str) -> HostEvent | None:
    if line.startswith("-- "):  # such as: -- No entries --
        return None
    found = _ENTRY.fullmatch(line)
    if found is None:
        if re.match(r"\d+\.\d+ \S+ sudo", line):
            return None
        raise ParseError("it is no line of sudo")
    at, who, said = found.groups()
    # The command comes last, and may contain text that looks like the fields before it.
    before, is_command, command = said.partition("COMMAND=")
    if not is_command:
        if re.match(r"(TTY|PWD)=", said):
            raise ParseError("it has no command")
        return None  # such as a warning of sudo itself
    fields = [field.strip() for field in before.split(" ; ")]
    # A first field that is not NAME=value is the reason of a refusal.
    refused = "" if re.match(r"[A-Z]+=", fields[0]) else f"was refused ({fields[0]}): "
    user = next((field[5:] for field in fields if field.startswith("USER=")), "root")
    what = f"{refused}{command} as {user}"
    return HostEvent(datetime.fromtimestamp(float(at), UTC), "sudo", who, what)


def parse_packages(answer: str) -> Events:
    """Return package changes.

    answer: begins with a line of seconds since 1970, the current offset from UTC, and the name of
    the host's time zone if it has one.
    """
    first, _, body = answer.partition("\n")
    found = re.fullmatch(r"(\d{1,11}) ([+-])(\d\d)(\d\d) ?(.*)", first, re.ASCII)
    if found is None:
        raise ParseError(f"the host printed {answer[:200]!r} instead of its packages")
    span = timedelta(hours=int(found[3]), minutes=int(found[4]))
    offset = timezone(-span if found[2] == "-" else span)
    zone = _find_zone(found[5].strip(), datetime.fromtimestamp(int(found[1]), offset))
    return _parse_lines(body, lambda line: _parse_package(line, zone, offset))


def _find_zone(name: str, now: datetime) -> tzinfo | None:
    """Return the host's time zone; None if its name is unknown or does not match its clock."""
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return zone if zone.utcoffset(now.astimezone(zone)) == now.utcoffset() else None


def _parse_package(line: str, zone: tzinfo | None, offset: timezone) -> HostEvent:
    if dpkg := _DPKG.fullmatch(line):
        at, verb, name, old, new = dpkg.groups()
        local = datetime.strptime(at, "%Y-%m-%d %H:%M:%S").replace(tzinfo=zone or offset)
        versions = {"install": new, "upgrade": f"{old} → {new}"}.get(verb, old)
        assumed = "" if zone else f" (time zone unknown: {offset} assumed)"
        what = f"{verb} {name.partition(':')[0]} {versions}{assumed}"
        return HostEvent(local.astimezone(UTC), "package", "", what)
    if rpm := _RPM.fullmatch(line):
        time = datetime.fromtimestamp(int(rpm[1]), UTC)
        return HostEvent(time, "package", "", f"install {rpm[2]} {rpm[3]}")
    raise ParseError("it is no change of a package")


def _parse_lines(text: str, parse_line: Callable[[str], HostEvent | None]) -> Events:
    return parse_each(filter(str.strip, text.splitlines()), parse_line)


_SINCE = WordPattern(r"@[0-9]{1,12}")
SUDO = (
    SudoRule("/usr/bin/journalctl", *_SUDO_OPTIONS, _SINCE, "-o", "short-unix", read_only=True),
    SudoRule("/usr/bin/journalctl", *_LOGIN_OPTIONS, _SINCE, "-o", "short-unix", read_only=True),
)
