from collections.abc import Sequence
from dataclasses import dataclass

from connectors import haproxy, haproxy_peers
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.haproxy_peers import Peer
from connectors.stick_table import TableHead
from runbooks import Check, Host, PartReader, Report, Table, make_host_field

# A full table deletes its oldest entries, also marked ones, for new ones.
_NEARLY_FULL = 0.9


@dataclass(frozen=True)
class StickTables:
    """All tables, and the peers that have copies of some."""

    heads: tuple[TableHead, ...]
    peers: tuple[Peer, ...] = ()
    errors: Sequence[str] = ()
    """What could not be read, as sentences."""


_MISSING = (
    "HAProxy's `show table` lists none, so no client can be marked: define a stick-table in its "
    "configuration"
)


class ListStickTables(
    Check[StickTables],
    words="abusers tables",
    example="lb1",
    verifies_tag=True,
    columns=("Table", "Keys", "Size", "Used", "Full", "Copies on"),
):
    """List HAProxy's stick tables, what they contain and how full they are."""

    host: Host = make_host_field("haproxy")

    def read(self, run_query: QueryRunner) -> StickTables:
        heads = run_query(self.host, haproxy.query_tables())
        parts = PartReader(run_query, self.host)
        peers = parts.read("the peers", haproxy.query_peers(), ())
        return StickTables(heads, peers, [*parts.get_errors().values()])

    def report(self, tables: StickTables) -> Report:
        heads = tables.heads
        if not heads:
            findings = [_MISSING, *tables.errors]
            return Report.from_findings(f"{self.host} has no stick tables", findings)
        fullest = sorted(heads, key=_compute_fill, reverse=True)
        full = [head for head in fullest if _compute_fill(head) >= _NEARLY_FULL]
        lost = [peer for peer in tables.peers if peer.shared_tables and not peer.is_connected]
        return Report.from_findings(
            f"{self.host} has {format_count(len(heads), 'stick table')}: "
            f"the fullest is {fullest[0].name} with {fullest[0].used:,} of "
            f"{fullest[0].size:,} entries",
            [*map(_format_full, full), *map(_format_disconnected, lost), *tables.errors],
            table=Table(
                self.columns,
                [(*_format_row(head), _format_peers(head, tables.peers)) for head in fullest],
            ),
        )


def _format_full(head: TableHead) -> str:
    return (
        f"{head.name} is {_format_percent(head)} full: when it is full, HAProxy deletes the "
        "entries that expire next, also marked ones. Increase the table's size"
    )


def _format_disconnected(peer: Peer) -> str:
    return (
        f"{peer.name} of the peers {peer.section} is not connected: clients that are marked here "
        "are not blocked there. Check that HAProxy runs there and that its peers' port is open"
    )


def _format_row(head: TableHead) -> tuple[str, ...]:
    return (
        head.name,
        head.key_description,
        f"{head.size:,}",
        f"{head.used:,}",
        _format_percent(head),
    )


def _format_peers(head: TableHead, peers: tuple[Peer, ...]) -> str:
    return (
        ", ".join(peer.name for peer in haproxy_peers.list_sharing_peers(head.name, peers)) or "-"
    )


def _compute_fill(head: TableHead) -> float:
    return head.used / head.size if head.size else 0.0


def _format_percent(head: TableHead) -> str:
    return f"{100 * _compute_fill(head):.1f} %"
