"""A peer with a smaller MTU, in network namespaces of this machine's kernel."""

import os
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from connectors import bond
from connectors.command import Query, Shell

PEER4, PEER6 = ip_address("198.51.100.2"), ip_address("2001:db8::2")
_BEGIN = (
    "mount -t tmpfs none /run && ip netns add far && "
    "ip link add near mtu 9000 type veth peer name beyond mtu 9000 netns far && "
    "ip addr add 198.51.100.1/24 dev near && ip addr add 2001:db8::1/64 dev near nodad && "
    "ip -n far addr add 198.51.100.2/24 dev beyond && "
    "ip -n far addr add 2001:db8::2/64 dev beyond nodad && "
    "ip link set near up && ip -n far link set beyond up && echo ready && exec cat"
)


class Inside:
    def __init__(self, process: int) -> None:
        self._enter = ("nsenter", "-t", str(process), "--net", "--mount", "--")

    def do(self, *words: str) -> str:
        return subprocess.run(
            (*self._enter, *words), capture_output=True, text=True, timeout=30, check=True
        ).stdout

    def ask(self, query: Query[int] | Query[bool]) -> int:
        assert isinstance(query.command, Shell)
        return int(query.parse(self.do(*query.command.words)))

    def pieces(self, peer: bond.IPv4Address | bond.IPv6Address) -> int:
        """Return how many answers of a large ping came in pieces; all of them must have come."""
        before = self.ask(bond.query_reassembled_count(peer.version))
        assert self.ask(bond.query_packet_fits(peer, 9000))
        return self.ask(bond.query_reassembled_count(peer.version)) - before


@pytest.fixture
def inside() -> Iterator[Inside]:
    if os.geteuid() != 0:
        pytest.skip("only root may have a network of its own")
    holder = subprocess.Popen(
        ("unshare", "--net", "--mount", "sh", "-c", _BEGIN),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "ready\n":
            _, output = holder.communicate()
            pytest.skip(f"this machine gives nobody a network of its own: {output}")
        yield Inside(holder.pid)
    finally:
        holder.communicate()


@pytest.mark.parametrize("peer", [PEER4, PEER6], ids=str)
def test_peer_with_a_smaller_mtu_answers_in_fragments(
    inside: Inside, peer: bond.IPv4Address | bond.IPv6Address
):
    assert inside.pieces(peer) == 0
    inside.do(
        *("ip", "-n", "far", f"-{peer.version}", "route", "replace"),
        *(("198.51.100.0/24",) if peer.version == 4 else ("2001:db8::/64", "metric", "256")),
        *("dev", "beyond", "proto", "kernel", "mtu", "1500"),
    )
    assert inside.pieces(peer) >= bond.PING_COUNT


@pytest.mark.parametrize("peer", [PEER4, PEER6], ids=str)
def test_mtu_of_a_route_is_read_where_it_has_one(
    inside: Inside, peer: bond.IPv4Address | bond.IPv6Address
):
    def read_route() -> bond.PeerRoute:
        query = bond.query_route(peer)
        assert isinstance(query.command, Shell)
        return query.parse(inside.do(*query.command.words))

    assert read_route() == bond.PeerRoute("near", None)
    host_route = f"{peer}/{peer.max_prefixlen}"
    inside.do("ip", f"-{peer.version}", "route", "add", host_route, "dev", "near", "mtu", "1400")
    assert read_route() == bond.PeerRoute("near", 1400)
