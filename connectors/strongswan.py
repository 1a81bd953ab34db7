"""IPsec tunnels of strongSwan: swanctl, or ipsec on hosts with the older starter. No I/O.

`swanctl --raw` prints the messages of vici(5) on one line each, as `NAME {KEY=VALUE KEY=[A B]}`.
`ipsec statusall` prints lines for people, of which those with a state are read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each
from connectors.sudo import SudoRule

_HINTS = (
    Hint(r"connecting to '.*' failed|is charon running", "strongSwan does not run: start it"),
    Hint(r"\A\Z", "strongSwan does not run: start it"),
    Hint(r"unknown (IPsec )?command|ipsec: .*usage", "this ipsec is not that of strongSwan"),
)
_TOKEN = re.compile(r"[{}]|[^\s{}=\[\]]+=\[[^\]]*\]|[^\s{}]+")
_STATE = re.compile(r"^ *(\S+?)([\[{])\d+[\]}]: +([A-Z_]+)(?=,| \d)(.*)$", re.MULTILINE)
_CONNECTION = re.compile(r"^ *(\S+): +(\S+)\.\.\.(\S+)  IKEv", re.MULTILINE)
_CHILD = re.compile(r"^ *(\S+): +child: +(.*?)(?: TUNNEL| TRANSPORT)", re.MULTILINE)


# What the lines of one association begin with.
_NAMED = r" *(\S+?[\[{]\d+[\]}]): "


@dataclass(frozen=True)
class Tunnel:
    """One security association: of IKE, or a child with the traffic of two networks."""

    connection: str
    """The connection in the configuration."""
    child: str
    """The child; "" for the association of IKE itself."""
    state: str
    """Such as ESTABLISHED or, of a child, INSTALLED."""
    peer: str
    """The address of the other side; "" where it is not printed."""
    seconds: int | None = None
    """Since it was established; None where it is not printed so."""
    received: int | None = None
    """Bytes; None for IKE, and where they are not printed."""
    sent: int | None = None
    networks: str = ""
    """The networks of a child, such as 10.1.0.0/16 to 10.2.0.0/16."""

    @property
    def is_up(self) -> bool:
        return self.state == ("INSTALLED" if self.child else "ESTABLISHED")


@dataclass(frozen=True)
class Connection:
    """One connection of the configuration."""

    name: str
    peer: str
    """The other side, as configured."""
    children: Sequence[str]

    @property
    def waits_for_peers(self) -> bool:
        """Whether any peer may connect, so that none has to be connected."""
        return "%any" in self.peer


@dataclass
class _Section:
    values: dict[str, str] = field(default_factory=dict[str, str])
    sections: "list[tuple[str, _Section]]" = field(default_factory=list["tuple[str, _Section]"])

    def find(self, name: str) -> "_Section":
        return next((section for each, section in self.sections if each == name), _Section())


def query_tunnels() -> Query[Sequence[Tunnel]]:
    return Query(_make_swanctl("--list-sas"), parse_tunnels)


def query_connections() -> Query[Sequence[Connection]]:
    return Query(_make_swanctl("--list-conns"), parse_connections)


def query_old_status() -> Query[tuple[Sequence[Connection], Sequence[Tunnel]]]:
    """Query connections and tunnels of a host without vici."""
    shell = Shell(("ipsec", "statusall"), root=True, hints=_HINTS)
    return Query(shell, parse_old_status)


def parse_tunnels(answer: str) -> Rows[Tunnel]:
    events = _list_events(answer, "list-sas")
    tunnels = (tunnel for name, each in events for tunnel in _list_tunnels(name, each))
    return Rows(tunnels, events.odd)


def _list_tunnels(name: str, association: _Section) -> Iterator[Tunnel]:
    values, peer = association.values, association.values.get("remote-host", "")
    seconds = _parse_number(values.get("established"))
    yield Tunnel(name, "", values.get("state", "unknown"), peer, seconds)
    for child, section in association.find("child-sas").sections:
        its = section.values
        ways = (its.get(f"{side}-ts", "").strip("[]") for side in ("local", "remote"))
        yield Tunnel(
            name,
            its.get("name", child),
            its.get("state", "unknown"),
            peer,
            _parse_number(its.get("install-time")),
            _parse_number(its.get("bytes-in")),
            _parse_number(its.get("bytes-out")),
            networks=" to ".join(ways),
        )


def parse_connections(answer: str) -> Rows[Connection]:
    events = _list_events(answer, "list-conns")
    return events.parse(lambda event: _make_connection(*event))


def _make_connection(name: str, section: _Section) -> Connection:
    peer = section.values.get("remote_addrs", "").strip("[]")
    children = section.find("children").sections
    # Traffic that passes by the tunnel, or is dropped, has no association.
    shunts = {child for child, its in children if its.values.get("mode") in {"PASS", "DROP"}}
    return Connection(name, peer, [child for child, _ in children if child not in shunts])


def _list_events(answer: str, command: str) -> Rows[tuple[str, _Section]]:
    """Return the sections of the events, of which each is a line of its own."""
    if not re.search(rf"(?m)^{command} reply {{", answer):
        raise ParseError(f"swanctl printed {answer[-200:]!r} instead of a reply to {command}")
    found = parse_each(answer.splitlines(), lambda line: _parse_event(line, command))
    return Rows((section for event in found for section in event), found.odd)


def _parse_event(line: str, command: str) -> Sequence[tuple[str, _Section]] | None:
    if line.startswith(f"{command} reply {{") or not line.strip():
        return None
    ((name, event),) = _parse_sections(line.partition(" ")[2]).sections
    if name != "event":
        raise ParseError("it is no event")
    return event.sections


def _parse_sections(text: str) -> _Section:
    """Parse nested sections. A word without `=` continues the value before, or names a section."""
    stack, bare, last = [_Section()], "", ""
    for piece in [*_TOKEN.findall(text), ""]:
        if piece == "{":
            section = _Section()
            stack[-1].sections.append((bare, section))
            stack.append(section)
            bare = last = ""
            continue
        if bare and last:
            stack[-1].values[last] += f" {bare}"
        bare = ""
        if piece == "}":
            if len(stack) == 1:
                raise ParseError("it has a brace too many")
            stack.pop()
            last = ""
        elif "=" in piece:
            # The first one counts: what a peer calls itself comes after the state.
            key, _, value = piece.partition("=")
            last = "" if key in stack[-1].values else key
            stack[-1].values.setdefault(key, value)
        else:
            bare = piece
    if len(stack) != 1:
        raise ParseError("it was cut off")
    return stack[0]


def _parse_number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def parse_old_status(answer: str) -> tuple[Rows[Connection], Rows[Tunnel]]:
    head, found, tail = answer.partition("Security Associations (")
    if not found:
        raise ParseError(f"ipsec printed {answer[:200]!r} instead of its status")
    _, _, listed = head.partition("Connections:\n")
    configured = re.split(r"(?m)^(?:Routed|Shunted) Connections:$", listed)[0]
    return (
        parse_each(_group_lines(configured, r" *(\S+?): "), _parse_old_connection),
        parse_each(_group_lines(tail.partition("\n")[2], _NAMED), _parse_old_tunnel),
    )


def _group_lines(text: str, key: str) -> Sequence[str]:
    """Return the lines of each connection or association together; other lines by themselves."""
    groups: dict[str, list[str]] = {}
    for line in filter(str.strip, text.splitlines()):
        found = re.match(key, line)
        groups.setdefault(found[1] if found else line, []).append(line)
    return ["\n".join(lines) for lines in groups.values()]


def _parse_old_connection(lines: str) -> Connection:
    found = _CONNECTION.match(lines)
    if found is None:
        raise ParseError("it is no connection")
    children = [name for name, _ in _CHILD.findall(lines)]
    return Connection(found[1], found[3], children)


def _parse_old_tunnel(lines: str) -> Tunnel | None:
    if lines.strip() == "none":
        return None
    found = _STATE.match(lines)
    if found is None:
        raise ParseError("it is no tunnel in a known state")
    name, kind, state, rest = found.groups()
    return Tunnel(name, name if kind == "{" else "", state, _parse_peer(rest))


def _parse_peer(rest: str) -> str:
    peer = re.search(r"\.\.\.([0-9A-Fa-f.:]+)\[", rest)
    return peer[1] if peer else ""


def _make_swanctl(option: str) -> Shell:
    return Shell(("swanctl", option, "--raw"), root=True, hints=_HINTS)


def group_by_connection(tunnels: Sequence[Tunnel]) -> Mapping[str, Sequence[Tunnel]]:
    groups: dict[str, list[Tunnel]] = {}
    for tunnel in tunnels:
        groups.setdefault(tunnel.connection, []).append(tunnel)
    return groups


SUDO = (
    SudoRule("/usr/sbin/swanctl", "--list-sas", "--raw", read_only=True),
    SudoRule("/usr/sbin/swanctl", "--list-conns", "--raw", read_only=True),
    SudoRule("/usr/sbin/ipsec", "statusall", read_only=True),
)
