"""systemd services: state, journal, configuration test, restart, reload, start, stop. No I/O.

Formats: systemctl(1) `show`, systemd.time(7), journalctl(1) `short-iso`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern

# Without these services a host may be unreachable, also for Keyturn. The host checks names too, so
# it is a POSIX regular expression.
PROTECTED_SERVICES = (
    "(ssh|sshd|dropbear|network|networking|NetworkManager|systemd-(networkd|resolved|logind|udevd|"
    "journald)|dbus|dbus-broker|wpa_supplicant|dhcpcd|dhclient|iptables|ip6tables|nftables|"
    "netfilter-persistent|firewalld|ufw|shorewall|csf|lfd|tailscaled|wg-quick|openvpn|strongswan|"
    "sssd|nslcd|winbind)([@-].*)?[.]service"
)

_HAPROXY = Setting("haproxy.config", "/etc/haproxy/haproxy.cfg", pattern=r"/[\w./-]+")
_NGINX = Setting("nginx.config", "/etc/nginx/nginx.conf", pattern=r"/[\w./-]+")
_APACHE = Setting("apache.control", "apachectl", pattern=r"[\w./-]+")
_CONFIGURATIONS = (_HAPROXY, _NGINX, _APACHE)
# Unit names of services with a configuration test.
TESTED_SERVICES = ("haproxy.service", "nginx.service", "apache2.service", "httpd.service")

_LOOK = load_script("service-test", argument_count=4)
_CONTROL = load_script("service-control", argument_count=5, PROTECTED=PROTECTED_SERVICES)
Verb = Literal["restart", "reload", "start", "stop"]

_HINTS = (
    Hint(r"configuration test: fails", "its configuration has errors: nothing was done"),
    Hint(
        r"not been booted with systemd|Failed to connect to bus",
        "this host does not run systemd: Keyturn cannot manage its services",
    ),
    Hint(
        r"neither a valid invocation ID nor unit name|is missing the instance name",
        "this is not the name of a service; a template needs its instance, such as getty@tty1",
    ),
    Hint(
        r"Interactive authentication required|Access denied",
        "this requires root: add the login's sudo rule",
    ),
    Hint(
        r"attempted too often|repeated too quickly|start-limit-hit",
        "it was started too often in a short time: run `systemctl reset-failed` for it before "
        "the next start",
    ),
    Hint(
        r"Job for .* (failed|canceled)",
        "the service did not start again: read `journalctl -u` and the service's own log",
    ),
    Hint(r"Job type reload is not applicable", "the service cannot reload: restart it"),
)

# With the Id and relations, so that an alias such as sshd is recognised.
_SHOWN = (
    "Id,Description,LoadState,ActiveState,SubState,Result,ActiveEnterTimestamp,MainPID,NRestarts,"
    "MemoryCurrent,RefuseManualStart,RefuseManualStop,NeedDaemonReload,RequiredBy,BoundBy,"
    "ConsistsOf,Conflicts,TriggeredBy,CanReload,StateChangeTimestamp,UnitFileState"
)

# Oldest first, without the hint about the messages of other users.
_JOURNAL = ("journalctl", "--no-pager", "-q", "--utc", "-o", "short-iso", "-n", "12")
# Characters of a line of the journal that are shown.
_MAX_LINE = 2_000
_STARTS_AT_BOOT = {"enabled": True, "enabled-runtime": True, "disabled": False}
_PROTECTED = re.compile(PROTECTED_SERVICES, re.ASCII)

# A service may use its whole timeout to stop and to start, 90 s each by default.
_PATIENCE = 240


@dataclass(frozen=True)
class Service:
    """A service as systemd shows it."""

    name: str
    """Its own name, also where the query used an alias."""
    description: str
    load_state: str
    """loaded, masked, not-found, error, …"""
    active_state: str
    """active, inactive, failed, activating, deactivating, reloading."""
    sub_state: str
    """The detailed state, such as running."""
    result: str
    """success, or how it ended."""
    started_at: datetime | None
    """When it last started; None if never."""
    pid: int
    restart_count: int
    """Automatic restarts by systemd."""
    memory_bytes: int | None
    """None where memory is not accounted."""
    is_manual: bool
    """Whether people may start and stop it."""
    needs_reload: bool
    """Whether its unit file has changed since systemd read it."""
    dependents: tuple[str, ...] = ()
    """Units that are stopped and restarted with it if they run."""
    conflicts: tuple[str, ...] = ()
    """Units that a start stops if they run."""
    triggers: tuple[str, ...] = ()
    """Sockets, timers and paths that start it again."""
    can_reload: bool = False
    """Whether it can read its configuration again while it runs."""
    changed_at: datetime | None = None
    """When its state last changed, which a reload does too; None if never, or if unknown."""
    starts_at_boot: bool | None = None
    """None where its unit file does not say."""

    @property
    def is_running(self) -> bool:
        return self.active_state == "active"

    @property
    def start_text(self) -> str:
        """When it last started, as text."""
        return f"{self.started_at:%Y-%m-%d %H:%M:%S UTC}" if self.started_at else "never"


@dataclass(frozen=True)
class ConfigurationTest:
    """The result of a configuration test. Both fields are empty if it passes."""

    error: str = ""
    """Why the service would not start with it."""
    untested_reason: str = ""
    """Why it was not tested."""


def query_services() -> Query[tuple[str, ...]]:
    """Query the names of services that are running or failed, without `.service`."""
    words = ("systemctl", "list-units", "--type=service", "--plain", "--no-legend", "--no-pager")
    return Query(Shell(words, hints=_HINTS), parse_services)


def query_service(name: str) -> Query[Service]:
    """Query one service. One that does not exist has the load state not-found."""
    # Without TZ, systemctl prints the ambiguous short name of the host's time zone.
    words = (
        "env",
        "TZ=UTC",
        "systemctl",
        "show",
        "--no-pager",
        "-p",
        _SHOWN,
        "--",
        format_unit(name),
    )
    return Query(Shell(words, hints=_HINTS), parse_service)


def query_journal(name: str) -> Query[tuple[str, ...]]:
    """Query the last lines of a service's journal, each with its time in UTC."""
    words = (*_JOURNAL, "-u", format_unit(name))
    return Query(Shell(words, root=True, hints=_HINTS), parse_journal)


def control_service(verb: Verb, name: str) -> Shell:
    """Restart, reload, start or stop a service. Status 0 does not mean that it stays up."""
    words = (_CONTROL, verb, format_unit(name), *_CONFIGURATIONS)
    return Shell(words, root=True, hints=_HINTS, deadline=_PATIENCE)


def is_protected(name: str) -> bool:
    """Return whether access to a host may depend on a unit."""
    return _PROTECTED.fullmatch(name) is not None


def query_configuration(name: str) -> Query[ConfigurationTest]:
    """Query the configuration test of one of TESTED_SERVICES."""
    words = (_LOOK, format_unit(name), *_CONFIGURATIONS)
    return Query(Shell(words, root=True, hints=_HINTS), parse_configuration)


def format_unit(name: str) -> str:
    """Return the service's unit name. systemctl would take a bare number as a job."""
    return name if name.endswith(".service") else f"{name}.service"


def parse_services(answer: str) -> Rows[str]:
    """Return names without `.service`. A failed service may have a mark before its name."""
    return parse_each(filter(str.strip, answer.splitlines()), _parse_listed_service)


def _parse_listed_service(line: str) -> str:
    words = line.lstrip("●*○× \t").split()
    if len(words) < 4 or not words[0].endswith(".service"):
        raise ParseError("it is no service")
    return words[0].removesuffix(".service")


def parse_journal(answer: str) -> tuple[str, ...]:
    """Return the lines, oldest first. systemd prints `-- No entries --` where there are none."""
    lines = (line for line in answer.splitlines() if line and not line.startswith("-- "))
    return tuple(
        line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}… ({len(line):,} characters)"
        for line in lines
    )


def parse_configuration(answer: str) -> ConfigurationTest:
    head, _, output = answer.strip().partition("\n")
    if head == "passes" and not output:
        return ConfigurationTest()
    if head == "fails":
        return ConfigurationTest(error=output.strip() or "it fails without a message")
    if (missing := re.fullmatch(r"no (\S+)", head)) and not output:
        return ConfigurationTest(untested_reason=f"the program {missing[1]} is missing")
    raise ParseError(f"the configuration test printed {answer[:200]!r}")


def parse_service(answer: str) -> Service:
    properties = dict(line.split("=", 1) for line in answer.splitlines() if "=" in line)
    try:
        return _make_service(properties)
    except (KeyError, ValueError) as error:
        raise ParseError(
            f"systemctl printed {answer[:200]!r} instead of a service: {error}"
        ) from None


def _make_service(properties: Mapping[str, str]) -> Service:
    related = (
        *properties["RequiredBy"].split(),
        *properties["BoundBy"].split(),
        *properties["ConsistsOf"].split(),
    )
    return Service(
        name=properties["Id"],
        description=properties["Description"],
        load_state=properties["LoadState"],
        active_state=properties["ActiveState"],
        sub_state=properties["SubState"],
        result=properties["Result"],
        started_at=_parse_time(properties["ActiveEnterTimestamp"]),
        pid=int(properties["MainPID"]),
        # systemd counts restarts since 235, and prints [not set] without memory accounting.
        restart_count=int(properties.get("NRestarts", "0")),
        memory_bytes=_parse_count(properties.get("MemoryCurrent", "[not set]")),
        is_manual=not _parse_yes_no(properties["RefuseManualStart"])
        and not _parse_yes_no(properties["RefuseManualStop"]),
        needs_reload=_parse_yes_no(properties["NeedDaemonReload"]),
        dependents=tuple(dict.fromkeys(related)),
        conflicts=tuple(_list_services(properties.get("Conflicts", ""))),
        triggers=tuple(properties.get("TriggeredBy", "").split()),
        can_reload=properties.get("CanReload") == "yes",
        changed_at=_parse_time(properties.get("StateChangeTimestamp", "")),
        starts_at_boot=_STARTS_AT_BOOT.get(properties.get("UnitFileState", "")),
    )


def _list_services(words: str) -> Iterator[str]:
    return (name for name in words.split() if name.endswith(".service"))


def _parse_yes_no(word: str) -> bool:
    if word not in ("yes", "no"):
        raise ValueError(f"{word!r} is neither yes nor no")
    return word == "yes"


def _parse_count(text: str) -> int | None:
    # Before 245 the unset value was the highest 64-bit number.
    return int(text) if text.isdecimal() and int(text) < 2**63 else None


def _parse_time(text: str) -> datetime | None:
    if text in ("", "n/a"):
        return None
    return datetime.strptime(text.partition(" ")[2], "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)


_UNIT = WordPattern(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,127}\.service")
SUDO = (
    *(SudoRule(_LOOK, name, *_CONFIGURATIONS, read_only=True) for name in TESTED_SERVICES),
    SudoRule("/usr/bin/journalctl", *_JOURNAL[1:], "-u", _UNIT, read_only=True),
    *(SudoRule(_CONTROL, verb, _UNIT, *_CONFIGURATIONS) for verb in get_args(Verb)),
)
