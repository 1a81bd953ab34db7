from dataclasses import dataclass

from connectors import haproxy, haproxy_peers
from connectors.command import Ask
from connectors.haproxy_peers import Peer
from connectors.stick_table import TableHead
from runbooks import Check, Host, Report, Table, tagged

# A full table forgets its oldest entries, marks among them, to take new ones.
_NEARLY_FULL = 0.9


@dataclass(frozen=True)
class Tables:
    """Every table, and the peers that have copies of some."""

    heads: tuple[TableHead, ...]
    peers: tuple[Peer, ...] = ()


class ListStickTables(Check[Tables], words="abusers tables", example="lb1"):
    """See which stick tables HAProxy keeps, what they hold and how full they are."""

    host: Host = tagged("haproxy")

    def read(self, ask: Ask) -> Tables:
        return Tables(ask(self.host, haproxy.tables()), ask(self.host, haproxy.peers()))

    def report(self, tables: Tables) -> Report:
        heads = tables.heads
        if not heads:
            return Report(f"{self.host} keeps no stick tables")
        fullest = sorted(heads, key=_filled, reverse=True)
        full = [head for head in fullest if _filled(head) >= _NEARLY_FULL]
        lost = [peer for peer in tables.peers if peer.tables and not peer.connected]
        return Report(
            f"{self.host} keeps {len(heads)} stick table{'s' if len(heads) > 1 else ''}: "
            f"the fullest is {fullest[0].name} with {fullest[0].used:,} of "
            f"{fullest[0].size:,} entries",
            healthy=not full and not lost,
            findings=[*map(_is_full, full), *map(_is_lost, lost)],
            table=Table(
                ("Table", "Holds", "Size", "Used", "Full", "Copies at"),
                [(*_row(head), _copies(head, tables.peers)) for head in fullest],
            ),
        )


def _is_full(head: TableHead) -> str:
    return (
        f"{head.name} is {_percent(head)} full: once there is no room HAProxy forgets the "
        "entries that are nearest to expiry, marked or not; give the table a larger size"
    )


def _is_lost(peer: Peer) -> str:
    return (
        f"{peer.name} of the peers {peer.section} is out of touch: who is marked here is not "
        "blocked there; see whether HAProxy runs there, and whether its peers' port is open"
    )


def _row(head: TableHead) -> tuple[str, ...]:
    return head.name, head.holds, f"{head.size:,}", f"{head.used:,}", _percent(head)


def _copies(head: TableHead, peers: tuple[Peer, ...]) -> str:
    return ", ".join(peer.name for peer in haproxy_peers.sharing(head.name, peers)) or "-"


def _filled(head: TableHead) -> float:
    return head.used / head.size if head.size else 0.0


def _percent(head: TableHead) -> str:
    return f"{100 * _filled(head):.1f} %"
