"""HAProxy peers, which share stick tables. No I/O.

The format is that of `show peers`, in HAProxy's management guide, section 9.3.
Peers send each other their counters, and never that an entry was cleared.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from connectors.rows import OddRow, Rows, make_odd_row

_SECTION = re.compile(r"0x[0-9a-f]+: \[[^]]*\] id=(\S+) .*")
# HAProxy 3 prints more fields between a peer's address and its status.
_PEER = re.compile(
    r"  0x[0-9a-f]+: id=(\S+)\((local|remote),\w+\) addr=\S+ (?:\w+=\S+ )*?last_status=(\S+) .*"
)
# What further lines of a peer begin with.
_DETAIL = " " * 8
_TABLE = re.compile(r"\s+table:0x[0-9a-f]+ id=(\S+) .*")
_ESTABLISHED = "ESTA"


@dataclass(frozen=True)
class Peer:
    """Another HAProxy that shares tables."""

    name: str
    """Its name in the `peers` section."""
    section: str
    """The name of that section."""
    is_connected: bool
    """Whether the connection to it is established."""
    shared_tables: frozenset[str] = frozenset()
    """The tables that it has copies of."""


def list_sharing_peers(table: str, known: Iterable[Peer]) -> tuple[Peer, ...]:
    """Return the peers that have a copy of one table."""
    return tuple(peer for peer in known if table in peer.shared_tables)


def format_copies(table: str, peers: Iterable[Peer]) -> tuple[str, ...]:
    """Return a warning for a change to a table that other peers have copies of; () without peers.

    peers: those that share the table.
    """
    names = [f"{peer.name}{'' if peer.is_connected else ' (not connected)'}" for peer in peers]
    if not names:
        return ()
    have = "has a copy" if len(names) == 1 else "have copies"
    return (
        f"{' and '.join(names)} {have} of {table} (HAProxy's peer names). An entry that is "
        "cleared here stays in the copies, and returns when a peer next counts the client or "
        "restarts: clear it on every balancer, with one request for lb* or a @tag.",
    )


def parse_peers(answer: str) -> Rows[Peer]:
    """Parse `show peers`: sections, their peers, and the tables that each has a copy of."""
    section, odd = "", list[OddRow]()
    found: list[tuple[Peer, bool]] = []
    for line in filter(str.strip, answer.splitlines()):
        head, peer, table = (each.fullmatch(line) for each in (_SECTION, _PEER, _TABLE))
        if head:
            section = head[1]
        elif peer and section:
            found.append((Peer(peer[1], section, peer[3] == _ESTABLISHED), peer[2] == "local"))
        elif table and found:
            last, is_local = found[-1]
            found[-1] = replace(last, shared_tables=last.shared_tables | {table[1]}), is_local
        elif not line.startswith(_DETAIL):
            odd.append(make_odd_row(line, "it is no peer"))
    return Rows((peer for peer, is_local in found if not is_local), odd)
