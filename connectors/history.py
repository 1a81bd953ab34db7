"""What people did on a host: its logins and starts, sudo's log, and its packages. No I/O.

Each source is asked for alone, because hosts differ in which they have, and in who may read them.
Formats: last(1) with times in ISO 8601, journalctl(1) `short-unix`, sudo's log entries as in
sudoers(5), dpkg(1)'s log, rpm(8)'s query format.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.sudo import SudoRule, WordPattern

EventKind = Literal["login", "start", "sudo", "package", "keyturn"]


@dataclass(frozen=True)
class HostEvent:
    """Something that happened. who: an account, "" where the source does not know.

    run: the number of the run of Keyturn that it is, 0 for anything else.
    """

    time: datetime
    kind: EventKind
    account: str
    description: str
    run: int = 0


@dataclass(frozen=True)
class RunSpan:
    """A time in which a run may have used the host, by Keyturn's clock. what: the run in words."""

    started_at: datetime
    ended_at: datetime
    run: int
    requester: str
    description: str


@dataclass(frozen=True)
class KeyturnHistory:
    """What Keyturn knows of itself on a host. now: its clock; None where nobody was asked.

    accounts: the logins that nobody else has. spans: of every run, also of those that only read.
    """

    events: tuple[HostEvent, ...] = ()
    accounts: frozenset[str] = frozenset()
    spans: tuple[RunSpan, ...] = ()
    clock: datetime | None = None


Events = tuple[HostEvent, ...]

_NO_LAST = Hint(r"last: .*not found|No such file", "this host keeps no record of logins")
_NO_JOURNAL = "No journal files were (found|opened)"
_NO_LOG = Hint(
    rf"{_NO_JOURNAL}|journalctl: .*not found",
    "this host keeps no journal, and other logs of sudo are not looked into",
)

# The clock, its offset and the time zone first: dpkg writes the host's own time without an offset.
# Rotated files may be absent; so is all of it on a host without dpkg, which has rpm instead. rpm
# knows no more than when what is there came.
_PACKAGES = (
    "zone=$(readlink -f /etc/localtime | sed -n 's|.*/zoneinfo/||p'); "
    'echo "$(date "+%s %z") ${zone:-$(cat /etc/timezone)}"; '
    "if command -v rpm >/dev/null && [ ! -e /var/lib/dpkg/status ]; then "
    "rpm -qa --queryformat '%{INSTALLTIME} %{NAME} %{VERSION}-%{RELEASE}.%{ARCH}\\n'; else "
    "zcat -f $(ls -tr /var/log/dpkg.log*) | "
    "grep -E '^[-0-9]+ [:0-9]+ (install|upgrade|remove|purge) '; fi; true"
)

_LOGIN = re.compile(r"(\S+)\s+(.+?)\s+(\d{4}-\d\d-\d\dT[\d:]+[+-][\d:]+)(?:\s+.*)?")
_ENTRY = re.compile(r"(\d+\.\d+) \S+ sudo(?:\[\d+\])?: *(\S+) : (.*)")
_DPKG = re.compile(r"([\d-]+ [\d:]+) (install|upgrade|remove|purge) (\S+) (\S+) (\S+)")
_RPM = re.compile(r"(\d+) (\S+) (\S+)")


_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class KeyturnHistoryQuery(Query[KeyturnHistory]):
    """What Keyturn itself did: whoever keeps its log answers in the host's stead."""

    since: datetime = _NEVER


def query_keyturn(since: datetime) -> KeyturnHistoryQuery:
    """Query what was done through Keyturn. A host knows nothing of it, and says so by nothing."""
    return KeyturnHistoryQuery(Shell(("true",)), lambda _: KeyturnHistory(), since=since)


def query_logins(since: datetime) -> Query[Events]:
    """Query who logged in, and when the host started. Needs util-linux 2.24 or newer."""
    moment = since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    words = ("env", "TZ=UTC", "last", "-w", "--time-format", "iso", "-s", moment)
    shell = Shell(words, hints=(_NO_LAST,))
    return Query(shell, lambda answer: _filter_since(parse_logins(answer), since))


_OF_SUDO = ("--no-pager", "-t", "sudo", "--since")


def query_sudo(since: datetime) -> Query[Events]:
    """Query what was done with sudo, and what was refused. Only root may read that everywhere."""
    moment = f"@{int(since.timestamp())}"
    words = ("journalctl", *_OF_SUDO, moment, "-o", "short-unix")
    # It ends with 0 also where it found nothing to look into.
    shell = Shell(words, root=True, error_pattern=_NO_JOURNAL, hints=(_NO_LOG,))
    return Query(shell, lambda answer: _filter_since(parse_sudo(answer), since))


def query_packages(since: datetime) -> Query[Events]:
    """Query which packages came and went; with rpm, only which came and are there still."""
    shell = Shell(("sh", "-c", _PACKAGES), deadline=60)
    return Query(shell, lambda answer: _filter_since(parse_packages(answer), since))


def query_clock() -> Query[datetime]:
    return Query(Shell(("date", "+%s")), parse_clock)


def _filter_since(events: Events, since: datetime) -> Events:
    return tuple(event for event in events if event.time >= since)


def parse_clock(answer: str) -> datetime:
    if not re.fullmatch(r"\d{1,11}\n?", answer, re.ASCII):
        raise ParseError(f"date answered {answer[:80]!r} instead of seconds")
    return datetime.fromtimestamp(int(answer), UTC)


def parse_logins(answer: str) -> Events:
    """Return logins and starts. The last line tells since when the file is kept."""
    body, _, foot = answer.rstrip("\n").rpartition("\n\n")
    if not re.search(r"(?m)^\S* ?begins ", foot or answer):
        raise ParseError(f"last answered {answer[:200]!r} instead of logins")
    return tuple(_parse_lines(body.strip("\n"), _parse_login))


def _parse_login(line: str) -> HostEvent | None:
    found = _LOGIN.fullmatch(line)
    if found is None:
        raise ParseError(f"last told {line[:120]!r}")
    who, where, at = found.groups()
    moment = datetime.fromisoformat(at).astimezone(UTC)
    if who in ("runlevel", "shutdown"):
        return None
    if who == "reboot":
        return HostEvent(moment, "start", "", "the host started")
    return HostEvent(moment, "login", who, f"logged in on {' '.join(where.split())}")


def parse_sudo(answer: str) -> Events:
    """Return what people wanted done; the lines of PAM around it tell nothing more."""
    if not answer.strip():
        raise ParseError("the journal told nothing of sudo, not even that there is nothing")
    return tuple(_parse_lines(answer, _parse_sudo_line))


def _parse_sudo_line(line: str) -> HostEvent | None:
    if line.startswith("-- "):  # such as: -- No entries --
        return None
    found = _ENTRY.fullmatch(line)
    if found is None:
        if re.match(r"\d+\.\d+ \S+ sudo", line):
            return None
        raise ParseError(f"the journal told {line[:120]!r} of sudo")
    at, who, said = found.groups()
    # The command comes last, and may itself hold what looks like the fields before it.
    before, is_command, command = said.partition("COMMAND=")
    if not is_command:
        return None
    fields = [field.strip() for field in before.split(" ; ")]
    # What is no NAME=value is why it was refused.
    refused = "" if re.match(r"[A-Z]+=", fields[0]) else f"was refused ({fields[0]}): "
    user = next((field[5:] for field in fields if field.startswith("USER=")), "root")
    what = f"{refused}{command} as {user}"
    return HostEvent(datetime.fromtimestamp(float(at), UTC), "sudo", who, what)


def parse_packages(answer: str) -> Events:
    """Return packages that came and went.

    answer: begins with a line of seconds since 1970, the offset from UTC now, and the name of the
    host's time zone, if it has one.
    """
    first, _, body = answer.partition("\n")
    found = re.fullmatch(r"(\d{1,11}) ([+-])(\d\d)(\d\d) ?(.*)", first, re.ASCII)
    if found is None:
        raise ParseError(f"the host answered {answer[:200]!r} instead of its packages")
    span = timedelta(hours=int(found[3]), minutes=int(found[4]))
    offset = timezone(-span if found[2] == "-" else span)
    zone = _find_zone(found[5].strip(), datetime.fromtimestamp(int(found[1]), offset))
    return tuple(_parse_lines(body, lambda line: _parse_package(line, zone, offset)))


def _find_zone(name: str, now: datetime) -> tzinfo | None:
    """Return the host's time zone; None if its name is unknown, or its clock runs by another."""
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
        moment = datetime.fromtimestamp(int(rpm[1]), UTC)
        return HostEvent(moment, "package", "", f"install {rpm[2]} {rpm[3]}")
    raise ParseError(f"the history of packages holds {line[:120]!r}")


def _parse_lines(text: str, understood: Callable[[str], HostEvent | None]) -> Iterator[HostEvent]:
    for line in text.splitlines():
        event = understood(line) if line.strip() else None
        if event is not None:
            yield event


_MOMENT = WordPattern(r"@[0-9]{1,12}")
SUDO = (SudoRule("/usr/bin/journalctl", *_OF_SUDO, _MOMENT, "-o", "short-unix", read_only=True),)
