"""CARP on FreeBSD and OpenBSD, as ifconfig(8) prints it. No I/O.

FreeBSD has addresses with a vhid on an ordinary interface and `carp: MASTER vhid 1 advbase 1
advskew 0`; OpenBSD has interfaces named carp0, and with balancing a line `state MASTER vhid 1` for
each. FreeBSD counts demotion in sysctl, OpenBSD not.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError

_HINTS = (Hint(r"ifconfig: (command )?not found", "CARP is of FreeBSD and OpenBSD: no ifconfig"),)
_INTERFACE = re.compile(r"^([A-Za-z][\w.:-]*?):? flags=", re.MULTILINE)
_GROUP = re.compile(
    r"^\s+(?:carp:|state) (?P<state>[A-Z]+) (?:carpdev \S+ )?vhid (?P<vhid>\d+)"
    r"(?: advbase \d+)? advskew (?P<skew>\d+)",
    re.MULTILINE,
)
_ADDRESS = re.compile(r"^\s+inet6? (?P<address>[0-9A-Fa-f.:]+)(?P<rest>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class CarpGroup:
    """One virtual host of one interface."""

    interface: str
    vhid: int
    state: str
    """MASTER, BACKUP or INIT."""
    skew: int
    """The lower one of two becomes master."""
    addresses: Sequence[str]


@dataclass(frozen=True)
class CarpHost:
    """What one host knows of CARP."""

    groups: Sequence[CarpGroup]
    demotion: int | None
    """How much it has lowered its own rank; None where sysctl does not say it."""
    is_allowed: bool = True
    """Whether it takes part in CARP at all (net.inet.carp.allow)."""


def query_groups() -> Query[CarpHost]:
    script = "ifconfig -a && { sysctl net.inet.carp 2>/dev/null || :; }"
    return Query(Shell(("sh", "-c", script, "keyturn"), hints=_HINTS), parse_groups)


def parse_groups(answer: str) -> CarpHost:
    parts = _INTERFACE.split(answer)
    if len(parts) < 3:
        raise ParseError(f"ifconfig printed {answer[:200]!r} instead of interfaces")
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    groups = [group for name, block in pairs for group in _list_groups(name, block)]
    return CarpHost(groups, _find_number(answer, "demotion"), _find_number(answer, "allow") != 0)


def _list_groups(name: str, block: str) -> Iterator[CarpGroup]:
    addresses = [(each["address"], each["rest"]) for each in _ADDRESS.finditer(block)]
    for found in _GROUP.finditer(block):
        own = [text for text, rest in addresses if re.search(rf" vhid {found['vhid']}\b", rest)]
        # On OpenBSD all addresses of the interface belong to it.
        its = own or [text for text, _ in addresses if name.startswith("carp")]
        yield CarpGroup(name, int(found["vhid"]), found["state"], int(found["skew"]), its)


def _find_number(answer: str, name: str) -> int | None:
    found = re.search(rf"(?m)^net\.inet\.carp\.{name}[:=] ?(\d+)$", answer)
    return int(found[1]) if found else None
