"""What the runbooks that mark clients share: whom they refuse, and when a mark ends."""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from connectors.haproxy_limits import TableLimits
from runbooks import Refused

Network = IPv4Network | IPv6Network


def refuse_unmarkable(address: IPv4Address | IPv6Address, protected: Collection[Network]) -> None:
    """Refuse what is not one client's address, and what haproxy.never_mark names."""
    is_broadcast = address == IPv4Address("255.255.255.255")
    if address.is_unspecified or address.is_multicast or is_broadcast:
        raise Refused(f"{address} is not the address of one client")
    for network in protected:
        if address in network:
            raise Refused(f"{address} may never be marked: haproxy.never_mark has {network}")


def format_mark_end(limits: TableLimits, table: str) -> str:
    expiry = limits.expiries.get(table)
    if expiry is None:
        return f"The mark ends when the entry of {table} expires."
    return (
        f"The mark ends when the entry of {table} expires: {expiry} from now, or from the last "
        "request that HAProxy counts in it."
    )
