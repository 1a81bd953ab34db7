from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors import nfsd
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.nfsd import NfsClient
from connectors.rows import Rows
from runbooks import Check, Host, PartReader, Report, Table, make_host_field


@dataclass(frozen=True)
class NfsServer:
    """The threads and clients of an NFS server."""

    threads: int
    clients: Sequence[NfsClient]
    """The clients of NFSv4."""
    connections: Sequence[str]
    """The address of each TCP connection, also of NFSv3."""
    errors: Sequence[str] = ()
    """What could not be read, as sentences."""


class ShowNfsClients(
    Check[NfsServer],
    words="nfs clients show",
    example="nas1",
    verifies_tag=True,
    columns=("Client", "Name", "NFS", "State", "Last renewal", "Holds", "Connections"),
):
    """List the clients of an NFS server, and what keeps them from working."""

    host: Host = make_host_field("nfs")

    def read(self, run_query: QueryRunner) -> NfsServer:
        threads = run_query(self.host, nfsd.query_threads())
        parts = PartReader(run_query, self.host)
        clients = parts.read("the clients of NFSv4", nfsd.query_clients(), Rows[NfsClient]())
        connections = parts.read("the connections", nfsd.query_connections(), ())
        return NfsServer(threads, clients, connections, [*parts.get_errors().values()])

    def report(self, server: NfsServer) -> Report:
        connections = Counter(server.connections)
        known = {client.address for client in server.clients}
        rows = [_format_row(client, connections[client.address]) for client in server.clients]
        rows += [
            (address, "", "3, or unknown", "", "", "", str(count))
            for address, count in sorted(connections.items())
            if address not in known
        ]
        count = len(known | connections.keys())
        return Report.from_findings(
            f"{self.host} serves {format_count(count, 'NFS client')} with "
            f"{format_count(server.threads, 'thread')}",
            _list_findings(server),
            table=Table(self.columns, rows),
        )


def _list_findings(server: NfsServer) -> Iterator[str]:
    yield from server.errors
    if not server.threads:
        yield "the NFS server is stopped: start nfs-server"
    for client in server.clients:
        if client.status in ("courtesy", "expirable"):
            yield (
                f"{client.address} does not answer any more ({client.status}): the server keeps "
                f"its {client.opens} files and locks until another client needs them"
            )
        elif client.callback in ("DOWN", "FAULT"):
            yield (
                f"the server cannot connect back to {client.address} (callback "
                f"{client.callback}), so it gets no delegations: check the firewalls between them"
            )


def _format_row(client: NfsClient, connections: int) -> tuple[str, ...]:
    return (
        client.address,
        client.name,
        client.version or "4",
        client.status or "unknown",
        "unknown" if client.idle_seconds is None else f"{client.idle_seconds} s ago",
        str(client.opens),
        str(connections),
    )
