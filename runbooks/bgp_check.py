from collections.abc import Iterator, Sequence

from connectors import bgp
from connectors.bgp import BgpPeer
from connectors.command import QueryRunner
from connectors.errors import SetupError
from runbooks import Check, Host, Report, Table, make_host_field

_MISSING = (
    "`show bgp summary` of FRR lists no neighbour in any VRF or family: load the configuration of "
    "bgpd, or remove the tag bgp"
)


class CheckBgp(
    Check[Sequence[BgpPeer]],
    words="bgp check",
    example="r1",
    verifies_tag=True,
    columns=("Peer", "AS", "VRF", "Family", "State", "For", "Received", "Sent", "Lost"),
):
    """Check that all BGP sessions of FRR are established and exchange prefixes."""

    host: Host = make_host_field("bgp")

    def read(self, run_query: QueryRunner) -> Sequence[BgpPeer]:
        try:
            return run_query(self.host, bgp.query_device_peers())
        except SetupError:  # it is a host with a shell
            return run_query(self.host, bgp.query_peers())

    def report(self, peers: Sequence[BgpPeer]) -> Report:
        if not peers:
            return Report.from_findings(f"{self.host} has no BGP peers", [_MISSING])
        findings = [finding for peer in peers for finding in _list_findings(peer)]
        up = sum(peer.state == "Established" for peer in peers)
        return Report.from_findings(
            f"{up} of {len(peers)} BGP sessions of {self.host} are established",
            findings,
            table=Table(
                self.columns,
                [_format_row(peer) for peer in peers],
            ),
        )


def _list_findings(peer: BgpPeer) -> Iterator[str]:
    name = f"{peer.address} (AS {peer.remote_as}, {peer.family})"
    if peer.block == "Admin":
        return
    if peer.block == "PfxCt":
        yield f"{name} sent more prefixes than maximum-prefix allows, and is shut down for that"
    elif peer.state != "Established":
        since = "since bgpd started" if peer.uptime == "never" else f"for {peer.uptime}"
        yield f"{name} is {peer.state} {since}: check that it is reachable and its configuration"
    elif not peer.received:
        yield f"{name} is established but sends no prefixes: check the filters of both sides"


def _format_row(peer: BgpPeer) -> tuple[str, ...]:
    return (
        f"{peer.address} {peer.description}".strip(),
        peer.remote_as,
        peer.vrf,
        peer.family,
        "shut down" if peer.block == "Admin" else peer.state,
        peer.uptime,
        f"{peer.received:,}",
        f"{peer.sent:,}",
        f"{peer.drops:,}",
    )
