"""What the runbooks of marked clients share: what they read, refuse and note."""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from connectors import haproxy
from connectors.amounts import format_duration
from connectors.command import QueryRunner
from connectors.haproxy_limits import TableLimits
from connectors.stick_table import InvalidKeyError, Key, TableEntry, TableHead
from runbooks._plan import Refused

Network = IPv4Network | IPv6Network


def read_marked(
    run_query: QueryRunner, host: str, table: str, mark: str, limits: TableLimits
) -> tuple[TableEntry, ...]:
    """Read the entries at or above the mark, the worst first. Raises Refused without a counter."""
    least = limits.get_mark(table, mark)
    try:
        entries = haproxy.read_entries_at_least(run_query, host, table, mark, least)
    except haproxy.MissingCounterError as missing:
        raise Refused(str(missing)) from None
    return tuple(
        sorted(entries, key=lambda one: (-one.counters.get(mark, 0), -one.expires_ms, one.key))
    )


def read_entry(
    run_query: QueryRunner, host: str, head: TableHead, address: Key
) -> TableEntry | None:
    """Read one entry. Raises Refused for an address that the table cannot hold."""
    try:
        return run_query(host, haproxy.query_entry(head, address))
    except InvalidKeyError as unfit:
        raise Refused(str(unfit)) from None


def read_mark_name(run_query: QueryRunner, host: str, table: str, mark: str) -> str:
    """Return HAProxy's spelling of the mark. Raises Refused if it cannot be set."""
    names = haproxy.read_counter_names(run_query, host, table, [mark])
    if mark not in names:
        raise Refused(f"{table} has no {mark} that this HAProxy can set")
    return names[mark]


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
        f"The mark ends when the entry of {table} expires: {format_duration(expiry)} from now, or "
        "from the last request that HAProxy counts in it."
    )
