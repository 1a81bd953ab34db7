"""The NFS server of Linux: its threads and its clients. No I/O.

Formats: nfsd(7) for threads; client_info_show in fs/nfsd/nfs4state.c of the kernel for clients
(since Linux 5.3, NFSv4 only); ss(8) for connections, which clients of NFSv3 have too.
"""

import re
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each, split_blocks
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern, make_range_pattern

# NFSD_MAXSERVS in fs/nfsd/nfssvc.c.
MAX_THREADS = 8192
_THREADS = "/proc/fs/nfsd/threads"
_HINTS = (
    Hint(
        rf"{_THREADS}'?: No such file",
        "this host has no NFS server of the kernel, or it was never started: start nfs-server",
    ),
    Hint(r"Permission denied", "this requires root: add the login's sudo rule"),
)
_SET = load_script("nfsd-threads", argument_count=1)
_CLIENTS = load_script("nfsd-clients", argument_count=0)
_HEAD = r"client \d+ \d+"
_LINE = r"[A-Za-z][A-Za-z ]*: "
_FIELD = re.compile(r'([a-z][a-z ]*): (?:"(.*)"|(.*))')


@dataclass(frozen=True)
class NfsClient:
    """One client of NFSv4."""

    address: str
    """Its address, without the port."""
    name: str
    """How it names itself, such as `Linux NFSv4.2 web1`."""
    version: str
    """Such as 4.2; "" if unknown."""
    status: str
    """confirmed, unconfirmed, courtesy or expirable; "" before Linux 5.13."""
    callback: str
    """The state of the connection back to it, such as UP; "" before Linux 5.13."""
    idle_seconds: int | None
    """Seconds since it last renewed its lease; None before Linux 5.13."""
    opens: int
    """The files, locks and delegations that it holds."""


def query_threads() -> Query[int]:
    """Query the number of threads; 0 if the server is stopped."""
    return Query(Shell(("cat", _THREADS), hints=_HINTS), parse_threads)


def parse_threads(answer: str) -> int:
    if not answer.strip().isdecimal():
        raise ParseError(f"{_THREADS} has {answer[:80]!r} instead of a number")
    return int(answer)


def set_threads(count: int) -> Shell:
    """Set the number of threads until the server is next started."""
    return Shell((_SET, str(count)), root=True, hints=_HINTS)


def query_clients() -> Query[Rows[NfsClient]]:
    return Query(Shell((_CLIENTS,), root=True, hints=_HINTS), parse_clients)


def parse_clients(answer: str) -> Rows[NfsClient]:
    *lines, end = answer.removesuffix("\n").split("\n")
    if end != "end":
        raise ParseError(f"the list of NFS clients was cut off after {end[:100]!r}")
    return parse_each(split_blocks(lines, inner=_LINE), _parse_client)


def _parse_client(block: str) -> NfsClient:
    head, *lines = block.splitlines()
    fields = {m[1]: m[2] if m[2] is not None else m[3] for m in map(_FIELD.fullmatch, lines) if m}
    if not re.fullmatch(_HEAD, head) or "address" not in fields:
        raise ParseError("it has no address of a client")
    idle = fields.get("seconds from last renew", "")
    minor = fields.get("minor version", "")
    return NfsClient(
        address=_strip_port(fields["address"]),
        name=fields.get("name", ""),
        version=f"4.{minor}" if minor else "",
        status=fields.get("status", ""),
        callback=fields.get("callback state", ""),
        idle_seconds=int(idle) if idle.isdecimal() else None,
        opens=int(head.split()[2]),
    )


def query_connections() -> Query[Rows[str]]:
    """Query the address of each client with a TCP connection to port 2049, once for each."""
    words = ("ss", "-Htn", "state", "established", "sport", "=", ":2049")
    return Query(Shell(words), parse_connections)


def parse_connections(answer: str) -> Rows[str]:
    return parse_each(answer.splitlines(), _parse_connection)


def _parse_connection(line: str) -> str:
    words = line.split()
    if len(words) < 4 or not re.search(r":\d+$", words[3]):
        raise ParseError("it is no connection")
    return _strip_port(words[3]).removeprefix("::ffff:")


def _strip_port(text: str) -> str:
    return text.rpartition(":")[0].strip("[]")


SUDO = (
    SudoRule(_CLIENTS, read_only=True),
    SudoRule(_SET, WordPattern(make_range_pattern(1, MAX_THREADS))),
)
