"""OpenVPN's status files, in each of their three versions and for clients. No I/O.

The format is in openvpn(8), `--status`: a server lists its clients, a client only its counters.
The units of Debian write /run/openvpn-server/status-NAME.log every minute, in version 2.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, make_odd_row, parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule

_STATUS = Setting("openvpn.status", "/run/openvpn-server", pattern=r"/[\w./-]{1,200}")
_HINTS = (Hint(r"Permission denied", "this requires root: add the login's sudo rule"),)
_READ = load_script("openvpn-status", argument_count=1)
_KINDS = frozenset({"TITLE", "TIME", "HEADER", "ROUTING_TABLE", "GLOBAL_STATS", "END"})
_FILE = re.compile(r"(?m)^file (\d+) (/\S+)$")


@dataclass(frozen=True)
class VpnClient:
    """One client of a server."""

    name: str
    """The common name of its certificate."""
    address: str
    """Where it connects from, with the port."""
    virtual_address: str
    """Its address in the VPN; "" if the file does not say it."""
    received: int
    """Bytes that the server received from it."""
    sent: int
    connected_since: str
    """In the host's own words."""


@dataclass(frozen=True)
class OpenVpn:
    """One status file: one running OpenVPN."""

    name: str
    """The name of the file without its ending and without `status`."""
    age: int
    """Seconds since it was written."""
    clients: Rows[VpnClient]
    is_server: bool


def query_status() -> Query[Rows[OpenVpn]]:
    """Query all status files; none if the directory or the file does not exist."""
    return Query(Shell((_READ, _STATUS), root=True, hints=_HINTS), parse_status)


def parse_status(answer: str) -> Rows[OpenVpn]:
    body = answer.removesuffix("\n")
    first, _, rest = body.partition("\n")
    if not re.fullmatch(r"now \d+", first) or rest.rpartition("\n")[2] != "end":
        raise ParseError(f"the status files of OpenVPN were cut off after {body[-100:]!r}")
    now = int(first.split()[1])
    parts = _FILE.split(rest.removesuffix("end"))
    files = zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    found = parse_each(
        files, lambda file: _parse_file(file[2].strip("\n"), file[1], now - int(file[0]))
    )
    stray = (make_odd_row(line, "it is outside of any file") for line in parts[0].splitlines())
    clients = (odd for each in found for odd in each.clients.odd)
    return Rows(found, [*stray, *found.odd, *clients])


def _parse_file(text: str, path: str, age: int) -> OpenVpn:
    name = re.sub(r"\.\w+$|-?status-?", "", path.rpartition("/")[2]) or path
    lines = text.splitlines()
    if not lines or lines[-1] != "END":
        raise ParseError("it was being written, or is no status file: try again")
    if lines[0] == "OpenVPN STATISTICS":
        return OpenVpn(name, age, Rows(), is_server=False)
    rows = _list_old_rows(lines) if lines[0] == "OpenVPN CLIENT LIST" else _list_rows(lines)
    return OpenVpn(name, age, parse_each(rows, _parse_client), is_server=True)


def _list_rows(lines: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the names and words of clients: of version 2, with commas, and 3, with tabs."""
    separator = "\t" if "\t" in lines[0] else ","
    names: Sequence[str] = ()
    for line in lines:
        kind, *words = line.split(separator)
        if kind == "HEADER" and words[:1] == ["CLIENT_LIST"]:
            names = words[1:]
        elif kind == "CLIENT_LIST":
            yield names, words
        elif kind not in _KINDS:
            yield (), [line]


def _list_old_rows(lines: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the clients of version 1: a heading in the third line, then a row for each."""
    names = lines[2].split(",")
    for line in lines[3:]:
        if line == "ROUTING TABLE":
            return
        yield names, line.split(",")


def _parse_client(columns: tuple[Sequence[str], Sequence[str]]) -> VpnClient:
    return _make_client(dict(zip(*columns, strict=True)))


def _make_client(row: Mapping[str, str]) -> VpnClient:
    return VpnClient(
        name=row["Common Name"],
        address=row["Real Address"],
        virtual_address=row.get("Virtual Address", ""),
        received=int(row["Bytes Received"]),
        sent=int(row["Bytes Sent"]),
        connected_since=row["Connected Since"],
    )


SUDO = (SudoRule(_READ, _STATUS, read_only=True),)
