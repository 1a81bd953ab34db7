"""BGP sessions of FRR, as `show bgp vrf all summary json` prints them. No I/O.

The format is that of bgp_show_summary in FRR's bgpd/bgp_vty.c, on a host with vtysh or on a router
that is reached as a device. It was recorded of FRR 8. FRR 7 has no peerState, only a state such as
`Idle (Admin)`, and before 7.0 prefixReceivedCount instead of pfxRcd. Since FRR 9, an AS may be
written as 1.10.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import DeviceCommand, Hint, Query, QueryRunner, Shell
from connectors.device_output import HINTS
from connectors.errors import ParseError, SetupError
from connectors.rows import Rows, join_rows, parse_each
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
    remote_as: str
    state: str
    """Established, or the state in which it tries to be."""
    block: str
    """Admin if it is shut down, PfxCt if it sent too many prefixes, Policy if a filter is missing
    that FRR requires, or OK."""
    uptime: str
    """Since when it is in or out of Established, such as 01:02:03 or never."""
    received: int
    """The number of prefixes."""
    sent: int
    drops: int
    """How often it was lost since bgpd started."""
    description: str = ""


def query_peers() -> Query[Rows[BgpPeer]]:
    """Query a host by its vtysh."""
    return Query(Shell(("vtysh", "-c", _SHOW), root=True, hints=_HINTS), parse_peers)


def read_peers(run_query: QueryRunner, host: str) -> Rows[BgpPeer]:
    try:
        return run_query(host, query_device_peers())
    except SetupError:  # it is a host with a shell
        return run_query(host, query_peers())


def query_device_peers() -> Query[Rows[BgpPeer]]:
    """Query a router of the platform frr."""
    return Query(DeviceCommand((_SHOW,), ("frr",), HINTS + _HINTS), parse_peers)


def parse_peers(answer: str) -> Rows[BgpPeer]:
    """Parse the JSON; without any BGP instance FRR prints an empty object, or a sentence."""
    if "BGP instance not found" in answer:
        return Rows()
    try:
        document = json.loads(answer)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ParseError(f"vtysh printed {answer[:200]!r} instead of BGP peers")
    vrfs = parse_each(cast("dict[str, Any]", document).items(), _parse_vrf)
    return join_rows(vrfs, vrfs.odd)


def _parse_vrf(item: tuple[str, Any]) -> Rows[BgpPeer]:
    vrf, families = item
    listed = [
        (address, vrf, _FAMILIES.get(family, family), peer)
        for family, summary in cast("dict[str, Any]", families).items()
        if isinstance(summary, dict) and "peers" in summary
        for address, peer in cast("dict[str, Any]", summary)["peers"].items()
    ]
    return parse_each(listed, lambda row: _make_peer(*row))


def _make_peer(address: str, vrf: str, family: str, peer: Any) -> BgpPeer:
    return BgpPeer(
        address=address,
        vrf=vrf,
        family=family,
        remote_as=str(peer["remoteAs"]),
        state=str(peer["state"]),
        block=str(peer.get("peerState") or _find_block(str(peer["state"]))),
        uptime=str(peer.get("peerUptime", "")),
        received=int(peer["pfxRcd"] if "pfxRcd" in peer else peer["prefixReceivedCount"]),
        sent=int(peer.get("pfxSnt", 0)),
        drops=int(peer.get("connectionsDropped", 0)),
        description=str(peer.get("desc", "")),
    )


def _find_block(state: str) -> str:
    """Return why a session is blocked, from its state: `Idle (PfxCt)`."""
    found = re.fullmatch(r"Idle \((Admin|PfxCt)\)", state)
    return found[1] if found else "OK"


SUDO = (SudoRule("/usr/bin/vtysh", "-c", _SHOW, read_only=True),)
