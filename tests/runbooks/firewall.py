"""A firewall of csf, and a scripted fleet with its host."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path

from connectors import csf, csf_list, pingdom
from connectors.csf import Firewall
from connectors.csf_grep import CsfEntries
from connectors.pingdom import ProbeFeed
from runbooks._csf import CsfAddress
from tests.pingdom_feeds import FOURS, SIXES, build_feed
from tests.scripted_fleet import ScriptedFleet

STATE = (
    Path(__file__).parent.parent / "connectors" / "answers" / "csf-state-rules.txt"
).read_text()
ALL = (*FOURS, *SIXES)
INCLUDE = "Include /etc/csf/keyturn.allow"


def build_firewall(
    own: Iterable[str] = (),
    *,
    in_force: Iterable[str] | None = None,
    settings: Mapping[str, str] | None = None,
    allow: Mapping[str, str] | None = None,
    deny: Mapping[str, str] | None = None,
    included_deny: Mapping[str, str] | None = None,
    ignore: Mapping[str, str] | None = None,
    mine: Iterable[str] = (),
    loaded: Iterable[str] = ("iptables", "ip6tables"),
) -> Firewall:
    """Return a firewall with a list of Keyturn; by default all its addresses are in force."""
    kept = list(own)
    return Firewall(
        settings={"TESTING": "0", "IPV6": "1", **(settings or {})},
        include_line=INCLUDE,
        is_included=True,
        own_list=csf_list.format_list([ip_address(each) for each in kept], "pingdom")
        if kept
        else "",
        allow=allow or {},
        deny=deny or {},
        included_deny=included_deny or {},
        ignore=ignore or {},
        allowed_networks=frozenset(map(ip_network, kept if in_force is None else in_force)),
        own_addresses=frozenset(map(ip_address, mine)),
        loaded_tables=frozenset(loaded),
    )


def probes(addresses: Iterable[str] = ALL, *, inactive: int = 0, built: str = "") -> ProbeFeed:
    return ProbeFeed(frozenset(map(ip_address, addresses)), inactive, built)


def build_firewall_fleet() -> ScriptedFleet:
    """Return a fleet with one host, whose firewall allows only one of the feed's probes."""
    return ScriptedFleet(
        {
            ("web1", csf.query_firewall().command): STATE,
            ("web1", pingdom.query_feed().command): build_feed(),
        }
    )


def csf_address(
    firewall: Firewall, entries: CsfEntries | None = None, *, source: str = "192.0.2.200"
) -> CsfAddress:
    return CsfAddress(firewall, entries or CsfEntries(), ip_address(source))
