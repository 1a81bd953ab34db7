"""Connection tracking of the kernel's firewall: connections and their limit. No I/O.

Formats: the kernel's nf_conntrack-sysctl document; /proc/net/stat/nf_conntrack has a line of names
and one line of hexadecimal counters for each processor.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from connectors import probation
from connectors.command import Hint, Query, QueryRunner, Setting, Shell
from connectors.errors import ParseError
from connectors.probation import Probation
from connectors.rows import NamedRows, parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern, make_range_pattern

_KEY = "net.netfilter.nf_conntrack_max"
_BELOW = "/proc/sys/net/netfilter"
_FILES = (
    *(f"{_BELOW}/nf_conntrack_{name}" for name in ("count", "max", "buckets")),
    *("/proc/meminfo", "/proc/net/stat/nf_conntrack"),
)
_HINTS = (
    Hint(
        r"nf_conntrack_count'?: No such file",
        "this kernel does not track connections: none of its firewall rules requires it",
    ),
    Hint(
        r"Invalid argument|Read-only file system",
        "this is a container: only its host can change the limit",
    ),
    Hint(r"permission denied", "this requires root: add the login's sudo rule"),
)

# With a lower limit a host soon refuses all connections; no table needs more than the maximum.
MIN_CONNECTIONS, MAX_CONNECTIONS = 4096, 16_777_216

# It sorts behind what distributions install; sysctl.d(5) has the order.
BOOT_FILE = "/etc/sysctl.d/99-keyturn-conntrack.conf"
_BOOT_FILES = ("/etc/sysctl.conf", *(f"/{top}/sysctl.d" for top in ("etc", "run", "usr/lib")))
_RESTORE = load_script(
    "conntrack-restore",
    argument_count=1,
    KEY=_KEY,
    MAXIMUM=f"{_BELOW}/nf_conntrack_max",
    BOOT_FILE=BOOT_FILE,
)
_KEEP = load_script("conntrack-boot", argument_count=1, KEY=_KEY, BOOT_FILE=BOOT_FILE)
_SECONDS = Setting("conntrack.probation", "120", pattern=r"[1-9][0-9]{0,3}")
PROBATION = Probation("conntrack", _RESTORE, _SECONDS)


@dataclass(frozen=True)
class Conntrack:
    """The connection tracking table of a host. Counters are since the host started."""

    count: int
    """Connections now."""
    maximum: int
    """The limit of connections."""
    buckets: int
    """Buckets of the hash table."""
    memory_bytes: int
    """All memory of the host."""
    dropped: int
    """Packets of new connections that were dropped because the table was full."""
    early_dropped: int
    """Connections that were removed from the table to make room."""
    boot_limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """The limit that each file of sysctl sets at boot, by path."""

    @property
    def usage(self) -> float:
        """The used share of the limit; 1.0 if it is reached."""
        return self.count / self.maximum if self.maximum else 0.0


def query_conntrack() -> Query[Conntrack]:
    return Query(Shell(("cat", *_FILES), hints=_HINTS), parse_conntrack)


def query_boot_limits() -> Query[Mapping[str, int]]:
    """Query which files set the limit at boot. grep exits with 1 for none, 2 for a missing one."""
    words = ("grep", "-rsHE", r"^[[:space:]]*net[./]netfilter[./]nf_conntrack_max[[:space:]]*=")
    return Query(Shell((*words, *_BOOT_FILES)), parse_boot_limits, frozenset({0, 1, 2}))


def read_limits(run_query: QueryRunner, host: str) -> Conntrack:
    """Read the table, with the limit of each file of sysctl."""
    limits = run_query(host, query_boot_limits())
    return replace(run_query(host, query_conntrack()), boot_limits=limits)


def parse_boot_limits(answer: str) -> NamedRows[str, int]:
    limits = parse_each(answer.splitlines(), _parse_boot_limit)
    return NamedRows(limits, limits.odd)


def _parse_boot_limit(line: str) -> tuple[str, int]:
    path, _, setting = line.partition(":")
    value = setting.partition("=")[2].strip()
    if not path.startswith("/") or not value.isdecimal():
        raise ParseError("it is no limit of a sysctl file")
    return path, int(value)


def keep_maximum(connections: int | None) -> Shell:
    """Set the limit after each boot; None leaves it to the host's other files."""
    limit = "none" if connections is None else str(connections)
    return Shell((_KEEP, limit), root=True, hints=_HINTS)


def set_maximum(connections: int) -> Shell:
    """Set the limit until the host's next boot."""
    return Shell(("sysctl", "-w", f"{_KEY}={connections}"), root=True, hints=_HINTS)


def parse_conntrack(answer: str) -> Conntrack:
    general, _, counters = answer.partition("\nentries ")
    lines, rows = general.splitlines(), counters.splitlines()
    try:
        count, maximum, buckets = (int(line) for line in lines[:3])
        memory = re.search(r"(?m)^MemTotal:\s+(\d+) kB$", general)
        names = ["entries", *rows[0].split()]
        counts = [dict(zip(names, row.split(), strict=True)) for row in rows[1:]]
        if memory is None or not counts:
            raise ValueError("a line is missing")
        return Conntrack(
            count=count,
            maximum=maximum,
            buckets=buckets,
            memory_bytes=int(memory[1]) * 1024,
            dropped=sum(int(row["drop"], 16) for row in counts),
            early_dropped=sum(int(row["early_drop"], 16) for row in counts),
        )
    except (ValueError, IndexError, KeyError):
        raise ParseError(
            f"the host printed {answer[:200]!r} instead of connection tracking counters"
        ) from None


_LIMIT = make_range_pattern(MIN_CONNECTIONS, MAX_CONNECTIONS)
SUDO = (
    *probation.make_sudo_rules(PROBATION),
    SudoRule(
        "/usr/sbin/sysctl",
        "-w",
        WordPattern(_LIMIT, prefix=f"{_KEY}="),
    ),
    SudoRule(_KEEP, WordPattern(f"none|{_LIMIT}")),
)
