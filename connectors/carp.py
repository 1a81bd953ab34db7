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
from connectors.rows import OddRow, Rows, join_rows, make_odd_row, parse_each

_HINTS = (Hint(r"ifconfig: (command )?not found", "CARP is of FreeBSD and OpenBSD: no ifconfig"),)
_INTERFACE = re.compile(r"^([A-Za-z][\w.:-]*?):? flags=", re.MULTILINE)
_GROUP = re.compile(
    r"^\s+(?:carp:|state) (?P<state>[A-Z]+) (?:carpdev \S+ )?vhid (?P<vhid>\d+)"
    r"(?: advbase \d+)? advskew (?P<skew>\d+)",
    re.MULTILINE,
)
_COUNTER = r"net\.inet\.carp\.[a-z_]+[:=] ?-?\d+$"
_STRAY = "it is no line of an interface"
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
    groups = join_rows(_parse_interface(name, block) for name, block in pairs)
    stray = (make_odd_row(line, _STRAY) for line in filter(str.strip, parts[0].splitlines()))
    return CarpHost(
        Rows(groups, [*stray, *groups.odd]),
        _find_number(answer, "demotion"),
        _find_number(answer, "allow") != 0,
    )


def _parse_interface(name: str, block: str) -> Rows[CarpGroup]:
    addresses = [(each["address"], each["rest"]) for each in _ADDRESS.finditer(block)]
    # The rest of the first line is what follows the flags.
    lines = filter(str.strip, block.splitlines()[1:])
    groups = parse_each(lines, lambda line: _parse_line(name, addresses, line))
    if groups.odd:
        return groups
    return Rows(groups, _list_lost_groups(name, addresses, {each.vhid for each in groups}))


def _list_lost_groups(
    name: str, addresses: Sequence[tuple[str, str]], known: set[int]
) -> Iterator[OddRow]:
    """Yield what has an address of a group, or the name of one, and has no group."""
    for address, rest in addresses:
        vhid = re.search(r" vhid (\d+)\b", rest)
        if vhid and int(vhid[1]) not in known:
            yield make_odd_row(f"{name}: {address}{rest}", "its CARP group is missing")
    if name.startswith("carp") and not known:
        yield make_odd_row(name, "it has no CARP group")


def _parse_line(name: str, addresses: Sequence[tuple[str, str]], line: str) -> CarpGroup | None:
    if not re.match(r"\s+(carp:|state )", line):
        if not re.match(rf"\s+\S|{_COUNTER}", line):
            raise ParseError(_STRAY)
        return None
    found = _GROUP.match(line)
    if found is None:
        raise ParseError("it is no CARP group in a known format")
    own = [text for text, rest in addresses if re.search(rf" vhid {found['vhid']}\b", rest)]
    # On OpenBSD all addresses of the interface belong to it.
    its = own or [text for text, _ in addresses if name.startswith("carp")]
    return CarpGroup(name, int(found["vhid"]), found["state"], int(found["skew"]), its)


def _find_number(answer: str, name: str) -> int | None:
    found = re.search(rf"(?m)^net\.inet\.carp\.{name}[:=] ?(\d+)$", answer)
    return int(found[1]) if found else None
