"""What can be said to systemd about its services. No I/O.

Formats: systemctl(1) `show`, systemd.time(7).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.script import Script
from connectors.sudo import SudoRule, WordPattern

# Without these a host may be out of reach, or nobody can log in any more: Keyturn neither. The
# host holds names against it too, so it is a POSIX regular expression.
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
# Services with a test of their configuration, as systemd calls them.
TESTED_SERVICES = ("haproxy.service", "nginx.service", "apache2.service", "httpd.service")

# $1: the service, $2 and $3: the configurations of HAProxy and nginx, $4: Apache's control
# program.
_TEST = (
    'tests() { case $1 in haproxy.service) set -- haproxy -c -f "$2";; '
    'nginx.service) set -- nginx -t -q -c "$3";; '
    'apache2.service|httpd.service) set -- "$4" -t;; *) return 0;; esac; '
    'command -v "$1" >/dev/null || { echo "no $1"; return 0; }; '
    'said=$("$@" 2>&1 </dev/null) || { printf "%s\\n" "fails" "$said"; return 1; }; '
    "echo passes; }; "
)
_LOOK = Script("service-test", f'{_TEST}tests "$@" || :', argument_count=4)
# What systemd says of the service decides, since it may have other names, and others are restarted
# with it. What cannot be asked is not restarted.
_RESTART = Script(
    "service-restart",
    f"{_TEST}"
    "told=$(systemctl show --no-pager -p Id -p ActiveState -p RequiredBy -p BoundBy "
    '-p ConsistsOf -- "$1") || exit; words=$(printf "%s\\n" "$told" | sed "s/^[^=]*=//" | '
    'tr " " "\\n"); for name in "$1" $words; do '
    f"! printf '%s\\n' \"$name\" | grep -qxE '{PROTECTED_SERVICES}' || "
    '{ echo "$name is a way into this host: nothing was restarted" >&2; exit 1; }; done; '
    'case "$told" in *ActiveState=inactive*|*ActiveState=deactivating*) '
    'echo "$1 is stopped: nothing was restarted" >&2; exit 1;; esac; '
    "id=${told#*Id=}; id=${id%%[!A-Za-z0-9_.:@-]*}; "
    'said=$(tests "$id" "$2" "$3" "$4") || '
    '{ printf "%s\\n" "configuration test: $said" >&2; exit 1; }; '
    'exec systemctl restart --no-ask-password -- "$1"',
    argument_count=4,
)

_HINTS = (
    Hint(r"configuration test: fails", "its configuration has errors: nothing was restarted"),
    Hint(
        r"not been booted with systemd|Failed to connect to bus",
        "this host does not run systemd: its services are looked after by something else",
    ),
    Hint(
        r"neither a valid invocation ID nor unit name|is missing the instance name",
        "this is no name of a service; one of several needs its instance, such as getty@tty1",
    ),
    Hint(
        r"Interactive authentication required|Access denied",
        "only root may do this: the login's sudo rule for it is missing",
    ),
    Hint(
        r"attempted too often|repeated too quickly|start-limit-hit",
        "it was started too often in a short time, and systemd will not start it again before "
        "somebody runs `systemctl reset-failed` for it",
    ),
    Hint(
        r"Job for .* (failed|canceled)",
        "the service did not come up again: look at `journalctl -u` and the service's own log",
    ),
)

# Ids and relations, so that an alias such as sshd is known for what it is.
_SHOWN = (
    "Id,Description,LoadState,ActiveState,SubState,Result,ActiveEnterTimestamp,MainPID,NRestarts,"
    "MemoryCurrent,RefuseManualStart,RefuseManualStop,NeedDaemonReload,RequiredBy,BoundBy,"
    "ConsistsOf"
)

# Services may take their whole time to stop and to start, 90 s each by default.
_PATIENCE = 240


@dataclass(frozen=True)
class Service:
    """What systemd knows of a service.

    name: its own name, whatever alias it was asked by. load: loaded, masked, not-found, error, …
    active: active, inactive, failed, activating, deactivating, reloading. sub: the finer state.
    result: success, or how it ended. started_at: when it last came up; None if never.
    memory: bytes, None where nobody counts them. restarts: by systemd itself, after it ended.
    by_hand: whether people may start and stop it. outdated: whether its file was edited since
    systemd read it. dragged: what is restarted with it, if it runs.
    """

    name: str
    description: str
    load_state: str
    active_state: str
    sub_state: str
    result: str
    started_at: datetime | None
    pid: int
    restart_count: int
    memory_bytes: int | None
    is_manual: bool
    needs_reload: bool
    dependents: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        return self.active_state == "active"


@dataclass(frozen=True)
class ConfigurationTest:
    """What the test of a configuration said: nothing where it passes.

    trouble: why a service would not come up with it. untested: why it was not tested.
    """

    error: str = ""
    untested_reason: str = ""


def query_services() -> Query[tuple[str, ...]]:
    """Query the names of the services that run or failed, as people type them."""
    words = ("systemctl", "list-units", "--type=service", "--plain", "--no-legend", "--no-pager")
    return Query(Shell(words, hints=_HINTS), parse_services)


def query_service(name: str) -> Query[Service]:
    """Query about one service; one that does not exist is an answer too (load is not-found)."""
    # The time zone is for our eyes: without it the host's own would be printed by its short name.
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


def restart_service(name: str) -> Shell:
    """Stop a service and start it again. Status 0 does not mean that it stays up."""
    words = (_RESTART, format_unit(name), *_CONFIGURATIONS)
    return Shell(words, root=True, hints=_HINTS, deadline=_PATIENCE)


def query_configuration(name: str) -> Query[ConfigurationTest]:
    """Query the test of the configuration of one of the services in TESTED."""
    words = (_LOOK, format_unit(name), *_CONFIGURATIONS)
    return Query(Shell(words, root=True, hints=_HINTS), parse_configuration)


def query_clock() -> Query[datetime]:
    """Query what time the host thinks it is."""
    return Query(Shell(("date", "+%s.%N")), parse_clock)


def format_unit(name: str) -> str:
    """Return the name of the service's unit. A bare number would be taken for a job."""
    return name if name.endswith(".service") else f"{name}.service"


def parse_clock(answer: str) -> datetime:
    # A date that knows no fractions says "%N" or "N" in their stead.
    told = re.fullmatch(r"(\d{1,11})(?:\.(\d{6})\d{3}|\.?%?N)?\n?", answer, re.ASCII)
    if told is None:
        raise ParseError(f"date answered {answer[:80]!r} instead of seconds")
    moment = datetime.fromtimestamp(int(told[1]), UTC)
    return moment.replace(microsecond=int(told[2] or 0))


def parse_services(answer: str) -> tuple[str, ...]:
    """Return names without `.service`. A failed service may have a mark before its name."""
    lines = [line.lstrip("●*○× \t").split() for line in answer.splitlines() if line.strip()]
    if any(len(words) < 4 or not words[0].endswith(".service") for words in lines):
        raise ParseError(f"systemctl answered {answer[:200]!r} instead of services")
    return tuple(words[0].removesuffix(".service") for words in lines)


def parse_configuration(answer: str) -> ConfigurationTest:
    head, _, said = answer.strip().partition("\n")
    if head == "passes" and not said:
        return ConfigurationTest()
    if head == "fails":
        return ConfigurationTest(error=said.strip() or "it fails without a word")
    if (none := re.fullmatch(r"no (\S+)", head)) and not said:
        return ConfigurationTest(untested_reason=f"there is no program {none[1]}")
    raise ParseError(f"the test of the configuration answered {answer[:200]!r}")


def parse_service(answer: str) -> Service:
    told = dict(line.split("=", 1) for line in answer.splitlines() if "=" in line)
    try:
        return _make_service(told)
    except (KeyError, ValueError) as error:
        raise ParseError(
            f"systemctl answered {answer[:200]!r} instead of a service: {error}"
        ) from None


def _make_service(told: Mapping[str, str]) -> Service:
    related = (*told["RequiredBy"].split(), *told["BoundBy"].split(), *told["ConsistsOf"].split())
    return Service(
        name=told["Id"],
        description=told["Description"],
        load_state=told["LoadState"],
        active_state=told["ActiveState"],
        sub_state=told["SubState"],
        result=told["Result"],
        started_at=_parse_time(told["ActiveEnterTimestamp"]),
        pid=int(told["MainPID"]),
        # Systemd counts them since 235, and says [not set] where it does not count memory.
        restart_count=int(told.get("NRestarts", "0")),
        memory_bytes=_parse_count(told.get("MemoryCurrent", "[not set]")),
        is_manual=not _parse_yes_no(told["RefuseManualStart"])
        and not _parse_yes_no(told["RefuseManualStop"]),
        needs_reload=_parse_yes_no(told["NeedDaemonReload"]),
        dependents=tuple(dict.fromkeys(related)),
    )


def _parse_yes_no(word: str) -> bool:
    if word not in ("yes", "no"):
        raise ValueError(f"{word!r} is neither yes nor no")
    return word == "yes"


def _parse_count(text: str) -> int | None:
    # Before 245 the unset value was the highest number there is.
    return int(text) if text.isdecimal() and int(text) < 2**63 else None


def _parse_time(text: str) -> datetime | None:
    if text in ("", "n/a"):
        return None
    return datetime.strptime(text.partition(" ")[2], "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)


_UNIT = WordPattern(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,127}\.service")
SUDO = (
    *(SudoRule(_LOOK, name, *_CONFIGURATIONS, read_only=True) for name in TESTED_SERVICES),
    SudoRule(_RESTART, _UNIT, *_CONFIGURATIONS),
)
