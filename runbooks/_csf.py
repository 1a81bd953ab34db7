"""What the runbooks of single addresses in csf share: what they read and refuse."""

from dataclasses import dataclass

from connectors import csf, csf_entry, csf_grep
from connectors.command import QueryRunner
from connectors.csf import Firewall
from connectors.csf_grep import CsfEntries
from connectors.probation import Probation
from runbooks import Address, Change, Host, Refused, make_host_field


@dataclass(frozen=True)
class CsfAddress:
    """What csf does with one address."""

    firewall: Firewall
    entries: CsfEntries
    source: Address
    """Where Keyturn connects from, as the host sees it."""


class ChangeOfAddress(Change[CsfAddress]):
    """Changes what csf does with one address, on probation."""

    host: Host = make_host_field("csf")
    address: Address

    def read(self, run_query: QueryRunner) -> CsfAddress:
        return _read_address(run_query, self.host, self.address)

    def get_probation(self) -> Probation:
        return csf_entry.make_probation(self.address)


def _read_address(run_query: QueryRunner, host: str, address: Address) -> CsfAddress:
    firewall = run_query(host, csf.query_firewall())
    refuse_unusable_firewall(firewall)
    if firewall.missing_tables:
        raise Refused(
            f"the firewall is off: csf's rules are not loaded into {firewall.missing_tables}. "
            "Find out who flushed them and why, then run csf -r"
        )
    if not firewall.can_filter(address):
        raise Refused('csf does not filter IPv6 here: set IPV6 = "1" in csf.conf first')
    if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        raise Refused(f"{address} is not the address of one machine")
    if address in firewall.own_addresses or address.is_loopback:
        raise Refused(f"{address} is an address of this host itself")
    matches = run_query(host, csf_grep.query_matches(address))
    return CsfAddress(
        firewall,
        csf_grep.parse_entries(matches, address),
        run_query(host, csf_entry.query_own_source()),
    )


def refuse_unusable_firewall(firewall: Firewall) -> None:
    if not firewall.is_enabled:
        raise Refused("csf is disabled on this host: run csf -e first")
    if firewall.is_testing:
        raise Refused(
            "csf is in TESTING mode, which removes all rules every five minutes: "
            'set TESTING = "0" in csf.conf first'
        )
