from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors import openvpn, programs, strongswan
from connectors.amounts import format_count, format_duration, format_size
from connectors.command import QueryRunner
from connectors.errors import CommandError
from connectors.openvpn import OpenVpn
from connectors.rows import Rows
from connectors.strongswan import Connection, Tunnel
from runbooks import Check, Host, PartReader, Report, Table, make_host_field

# OpenVPN writes its status file every minute by default.
_OLD_SECONDS = 180
_MISSING = (
    "no status file of OpenVPN at openvpn.status, and no connection or tunnel of strongSwan by "
    "swanctl or ipsec: start the VPN, set openvpn.status in the inventory, or remove the tag vpn"
)


@dataclass(frozen=True)
class VpnState:
    """The VPNs of a host."""

    servers: Sequence[OpenVpn]
    connections: Sequence[Connection]
    """The connections of IPsec in the configuration."""
    tunnels: Sequence[Tunnel]
    errors: Sequence[str] = ()
    """What could not be read, as sentences."""
    has_openvpn: bool = False
    """Whether OpenVPN is installed."""


class CheckVpn(
    Check[VpnState],
    words="vpn check",
    also_called=("tunnel down",),
    example="vpn1",
    verifies_tag=True,
    columns=("VPN", "Peer", "Inside", "State", "Since", "Received", "Sent"),
):
    """Check OpenVPN's clients, and the IPsec tunnels of strongSwan."""

    host: Host = make_host_field("vpn")

    def read(self, run_query: QueryRunner) -> VpnState:
        installed = run_query(self.host, programs.query_installed("openvpn", "swanctl", "ipsec"))
        parts = PartReader(run_query, self.host)
        servers = Rows[OpenVpn]()
        if "openvpn" in installed:
            servers = parts.read("OpenVPN", openvpn.query_status(), servers)
        connections, tunnels = self._read_ipsec(run_query, parts, installed)
        parts.require_any()
        errors = [*parts.get_errors().values()]
        return VpnState(servers, connections, tunnels, errors, "openvpn" in installed)

    def _read_ipsec(
        self, run_query: QueryRunner, parts: PartReader, installed: frozenset[str]
    ) -> tuple[Sequence[Connection], Sequence[Tunnel]]:
        is_old = "ipsec" in installed and not self._has_vici(run_query, installed)
        if is_old:
            return parts.read("IPsec", strongswan.query_old_status(), ((), ()))
        if "swanctl" not in installed:
            return (), ()
        connections = parts.read("the connections of IPsec", strongswan.query_connections(), ())
        tunnels = parts.read("the tunnels of IPsec", strongswan.query_tunnels(), None)
        # Without the tunnels, it is unknown which connections are established.
        return ((), ()) if tunnels is None else (connections, tunnels)

    def _has_vici(self, run_query: QueryRunner, installed: frozenset[str]) -> bool:
        """Return whether swanctl works: both may be installed, where the older one has no vici."""
        if "swanctl" not in installed:
            return False
        try:
            run_query(self.host, strongswan.query_connections())
        except CommandError:
            return False
        return True

    def report(self, state: VpnState) -> Report:
        rows = [
            *(row for server in state.servers for row in _list_client_rows(server)),
            *(_format_tunnel_row(tunnel) for tunnel in state.tunnels),
        ]
        findings = [
            *(found for server in state.servers for found in _list_server_findings(server)),
            *_list_connection_findings(state),
            *(state.errors or ([_MISSING] if _is_empty(state) else ())),
        ]
        return Report.from_findings(
            f"{self.host} has {_format_summary(state)}",
            findings,
            notes=_list_notes(state),
            table=Table(self.columns, rows),
        )


def _is_empty(state: VpnState) -> bool:
    return not (state.servers or state.connections or state.tunnels)


def _format_summary(state: VpnState) -> str:
    parts: list[str] = []
    if state.servers:
        clients = sum(len(server.clients) for server in state.servers)
        parts.append(format_count(clients, "OpenVPN client"))
    if state.connections or state.tunnels:
        established = {each.connection for each in state.tunnels if each.is_up and not each.child}
        wanted = {each.name for each in state.connections if not each.waits_for_peers}
        names = wanted | established
        parts.append(f"{len(established)} of {len(names)} IPsec connections established")
    return " and ".join(parts) or "no VPN"


def _list_server_findings(server: OpenVpn) -> Iterator[str]:
    if server.age > _OLD_SECONDS:
        yield (
            f"the status of OpenVPN {server.name} is {format_duration(server.age)} old: check "
            "that it runs"
        )


def _list_connection_findings(state: VpnState) -> Iterator[str]:
    groups = strongswan.group_by_connection(state.tunnels)
    for connection in state.connections:
        if connection.waits_for_peers:
            continue
        tunnels = groups.get(connection.name, ())
        up = {tunnel.child for tunnel in tunnels if tunnel.is_up}
        if "" not in up:
            states = ", ".join(dict.fromkeys(t.state for t in tunnels if not t.child))
            yield (
                f"IPsec {connection.name} to {connection.peer} is not established"
                f"{f' ({states})' if states else ''}"
            )
            continue
        for child in connection.children:
            if child not in up:
                yield f"IPsec {connection.name}: the tunnel {child} is not installed"


def _list_notes(state: VpnState) -> Iterator[str]:
    # Its directory is gone once the service stops, and not every host with OpenVPN runs it.
    if state.has_openvpn and not state.servers and not (state.errors or _is_empty(state)):
        yield (
            "OpenVPN is installed and has no status file at openvpn.status: if it is to run here, "
            "start it"
        )


def _list_client_rows(server: OpenVpn) -> Iterator[tuple[str, ...]]:
    if not server.is_server:
        yield f"OpenVPN {server.name}", "-", "-", "client", "-", "-", "-"
    for client in server.clients:
        yield (
            f"OpenVPN {server.name}",
            f"{client.name} {client.address}",
            client.virtual_address or "-",
            "connected",
            client.connected_since,
            format_size(client.received),
            format_size(client.sent),
        )


def _format_tunnel_row(tunnel: Tunnel) -> tuple[str, ...]:
    name = "/".join(filter(None, (tunnel.connection, tunnel.child)))
    return (
        f"IPsec {name}",
        tunnel.peer or "-",
        tunnel.networks or "-",
        tunnel.state,
        "-" if tunnel.seconds is None else f"{format_duration(tunnel.seconds)} ago",
        "-" if tunnel.received is None else format_size(tunnel.received),
        "-" if tunnel.sent is None else format_size(tunnel.sent),
    )
