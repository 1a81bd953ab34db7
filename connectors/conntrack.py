"""How many connections the kernel's firewall keeps track of, and how many it may. No I/O.

Formats: the kernel's nf_conntrack-sysctl document; /proc/net/stat/nf_conntrack has a line of names
and one line of hexadecimal counters for each processor.
"""

import re
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
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
        "this kernel keeps track of no connections: no rule of its firewall asks for it",
    ),
    Hint(
        r"Invalid argument|Read-only file system",
        "this is a container, and only its host can change the limit",
    ),
    Hint(r"permission denied", "only root may do this: the login's sudo rule for it is missing"),
)

# With fewer a host soon locks everybody out; more than that no table needs.
MIN_CONNECTIONS, MAX_CONNECTIONS = 4096, 16_777_216
# What the kernel takes for one connection with its place in the hash table; rather too much.
ENTRY_BYTES = 400


@dataclass(frozen=True)
class Conntrack:
    """count: connections now. maximum: connections at most. buckets: of the hash table.

    memory: bytes that the host has. dropped: packets of new connections that found no place,
    early_dropped: connections that were forgotten to make some; both since the host started.
    """

    count: int
    maximum: int
    buckets: int
    memory_bytes: int
    dropped: int
    early_dropped: int

    @property
    def usage(self) -> float:
        """The share of the limit that is used, 1.0 if it is reached."""
        return self.count / self.maximum if self.maximum else 0.0


def query_conntrack() -> Query[Conntrack]:
    return Query(Shell(("cat", *_FILES), hints=_HINTS), parse_conntrack)


def set_maximum(connections: int) -> Shell:
    """Set the limit until the next start of the host."""
    return Shell(("sysctl", "-w", f"{_KEY}={connections}"), root=True, hints=_HINTS)


def parse_conntrack(answer: str) -> Conntrack:
    general, _, counters = answer.partition("\nentries ")
    lines, rows = general.splitlines(), counters.splitlines()
    try:
        count, maximum, buckets = (int(line) for line in lines[:3])
        memory = re.search(r"(?m)^MemTotal:\s+(\d+) kB$", general)
        names = ["entries", *rows[0].split()]
        told = [dict(zip(names, row.split(), strict=True)) for row in rows[1:]]
        if memory is None or not told:
            raise ValueError("a line is missing")
        return Conntrack(
            count=count,
            maximum=maximum,
            buckets=buckets,
            memory_bytes=int(memory[1]) * 1024,
            dropped=sum(int(row["drop"], 16) for row in told),
            early_dropped=sum(int(row["early_drop"], 16) for row in told),
        )
    except (ValueError, IndexError, KeyError):
        raise ParseError(
            f"the host answered {answer[:200]!r} instead of its count of connections"
        ) from None


SUDO = (
    SudoRule(
        "/usr/sbin/sysctl",
        "-w",
        WordPattern(make_range_pattern(MIN_CONNECTIONS, MAX_CONNECTIONS), prefix=f"{_KEY}="),
    ),
)
