"""BGP sessions of FRR, as `show bgp vrf all summary json` prints them. No I/O.

The format is that of FRR 8, on a host with vtysh or on a router that is reached as a device.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import DeviceCommand, Hint, Query, Shell
from connectors.device_output import HINTS
from connectors.errors import ParseError
from connectors.sudo import SudoRule

_SHOW = "show bgp vrf all summary json"
_HINTS = (
    Hint(r"bgpd is not running", "bgpd does not run: enable it in /etc/frr/daemons"),
    Hint(r"failed to connect to any daemons", "FRR does not run, or the login may not reach it"),
)
_FAMILIES = {"ipv4Unicast": "IPv4", "ipv6Unicast": "IPv6", "l2VpnEvpn": "EVPN"}


@dataclass(frozen=True)
class BgpPeer:
    """One session, in one address family."""

    address: str
    vrf: str
    family: str
    """Such as IPv4 or ipv4Multicast."""
    remote_as: int
    state: str
    """Established, or the state in which it tries to be."""
    block: str
    """Admin if it is shut down, PfxCt if it sent too many prefixes, or OK."""
    uptime: str
    """Since when it is in or out of Established, such as 01:02:03 or never."""
    received: int
    """The number of prefixes."""
    sent: int
    drops: int
    """How often it was lost since bgpd started."""
    description: str = ""


def query_peers() -> Query[Sequence[BgpPeer]]:
    """Query a host by its vtysh."""
    return Query(Shell(("vtysh", "-c", _SHOW), root=True, hints=_HINTS), parse_peers)


def query_device_peers() -> Query[Sequence[BgpPeer]]:
    """Query a router of the platform frr."""
    return Query(DeviceCommand((_SHOW,), ("frr",), HINTS + _HINTS), parse_peers)


def parse_peers(answer: str) -> Sequence[BgpPeer]:
    """Parse the JSON; without any BGP instance FRR prints an empty object, or a sentence."""
    if "BGP instance not found" in answer:
        return []
    try:
        document = cast("dict[str, Any]", json.loads(answer))
        return [*_list_peers(document)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ParseError(f"vtysh printed {answer[:200]!r} instead of BGP peers") from None


def _list_peers(document: Mapping[str, Any]) -> Iterator[BgpPeer]:
    for vrf, families in document.items():
        for family, summary in cast("dict[str, Any]", families).items():
            if isinstance(summary, dict) and "peers" in summary:
                peers = cast("dict[str, dict[str, Any]]", summary["peers"])
                for address, peer in peers.items():
                    yield _make_peer(address, vrf, _FAMILIES.get(family, family), peer)


def _make_peer(address: str, vrf: str, family: str, peer: Mapping[str, Any]) -> BgpPeer:
    return BgpPeer(
        address=address,
        vrf=vrf,
        family=family,
        remote_as=int(peer["remoteAs"]),
        state=str(peer["state"]),
        block=str(peer.get("peerState", "OK")),
        uptime=str(peer.get("peerUptime", "")),
        received=int(peer.get("pfxRcd", 0)),
        sent=int(peer.get("pfxSnt", 0)),
        drops=int(peer.get("connectionsDropped", 0)),
        description=str(peer.get("desc", "")),
    )


SUDO = (SudoRule("/usr/bin/vtysh", "-c", _SHOW, read_only=True),)
