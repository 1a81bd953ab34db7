from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Annotated

from pydantic import BeforeValidator, Field

from connectors import haproxy, haproxy_limits
from connectors.command import QueryRunner
from connectors.haproxy_limits import TableLimits
from connectors.public_addresses import is_internal
from connectors.stick_table import InvalidKeyError, TableEntry, TableHead, format_key
from runbooks import Change, CounterName, Host, Plan, Refused, Step, TableName, make_host_field
from runbooks._abusers import Network, format_mark_end, read_mark_name, refuse_unmarkable

# Each client is a step, which people read before they approve it.
_MOST = 64
_EXAMPLE = "203.0.113.9,203.0.113.64/28"


def _parse_networks(value: object) -> str:
    """Return addresses and networks with commas between them, each as Python writes it."""
    parts = value.split(",") if isinstance(value, str) else []
    try:
        networks = [ip_network(part if "%" not in part else "") for part in parts]
    except ValueError:
        networks = []
    if not networks or len(networks) > _MOST:
        raise ValueError(
            f"enter up to {_MOST} addresses and networks, with commas between them, such as "
            f"{_EXAMPLE}"
        )
    return ",".join(_format_network(network) for network in dict.fromkeys(networks))


def _format_network(network: Network) -> str:
    return str(network.network_address if network.num_addresses == 1 else network)


Addresses = Annotated[
    str,
    BeforeValidator(_parse_networks),
    Field(description="Addresses and networks, with commas between them"),
]


@dataclass(frozen=True)
class MarkedTable:
    """The clients of a table whose mark is not 0."""

    head: TableHead
    entries: Mapping[str, TableEntry]
    """By key."""
    counter_name: str
    """HAProxy's spelling of the mark."""
    limits: TableLimits
    protected: Sequence[Network] = ()
    """What haproxy.never_mark names."""


class _BulkChange(Change[MarkedTable]):
    """Sets the mark of several clients, each in a step; subclasses decide to what."""

    host: Host = make_host_field("haproxy")
    addresses: Addresses
    table: TableName = "http"
    mark: CounterName = "gpc0"

    @property
    def networks(self) -> Sequence[Network]:
        return tuple(map(ip_network, self.addresses.split(",")))

    def read(self, run_query: QueryRunner) -> MarkedTable:
        head = run_query(self.host, haproxy.query_table_head(self.table))
        if not head.has_address_keys:
            raise Refused(f"{self.table} holds {head.key_description}, not addresses")
        name = read_mark_name(run_query, self.host, self.table, self.mark)
        entries = haproxy.read_entries_at_least(run_query, self.host, self.table, self.mark, 1)
        return MarkedTable(
            head,
            {entry.key: entry for entry in entries},
            name,
            haproxy_limits.read_limits(run_query, self.host),
            run_query(self.host, haproxy.query_protected_networks()),
        )

    def make_step(self, state: MarkedTable, key: str, *, old: int, new: int) -> Step:
        marked = f"marked ({self.mark})"
        return Step(
            f"Mark {key} as an abuser" if new else f"Unblock {key}",
            self.host,
            do=haproxy.mark_entry(state.head, key, state.counter_name, new),
            undo=haproxy.mark_entry(state.head, key, state.counter_name, old),
            before="not marked" if new else marked,
            after=marked if new else "not marked",
        )


class MarkAbusers(
    _BulkChange, words="abusers bulk mark", example=f"lb1 {_EXAMPLE}", undo="removes the marks"
):
    """Mark several addresses as abusers: every address of a list or of small networks."""

    def plan(self, state: MarkedTable) -> Plan:
        keys = self._list_keys(state)
        least = state.limits.get_mark(self.table, self.mark)
        values = {
            key: state.entries[key].counters.get(self.mark, 0) if key in state.entries else 0
            for key in keys
        }
        steps = [
            self.make_step(state, key, old=value, new=least)
            for key, value in values.items()
            if value < least
        ]
        if not steps:
            are = "are" if len(keys) > 1 else "is"
            return Plan(f"{self.addresses} {are} marked in {self.table}")
        because = f"{len(steps)} of {len(keys)} addresses are not marked in {self.table}"
        return Plan(because, steps, self._list_notes(state, keys))

    def _list_keys(self, state: MarkedTable) -> Sequence[str]:
        if sum(network.num_addresses for network in self.networks) > _MOST:
            raise Refused(
                f"{self.addresses} are more than {_MOST} addresses: mark fewer, or block the "
                "network in HAProxy's configuration"
            )
        addresses = dict.fromkeys(each for network in self.networks for each in network)
        for address in addresses:
            refuse_unmarkable(address, state.protected)
        try:
            return [format_key(state.head, address) for address in addresses]
        except InvalidKeyError as unfit:
            raise Refused(str(unfit)) from None

    def _list_notes(self, state: MarkedTable, keys: Sequence[str]) -> Sequence[str]:
        private = [key for key in keys if is_internal(_parse_key(key))]
        notes = [format_mark_end(state.limits, self.table)]
        if private:
            notes.append(
                f"{', '.join(private)}: private addresses, which may be monitoring or a proxy."
            )
        return notes


class ClearAbusers(
    _BulkChange,
    words="abusers bulk clear",
    example=f"lb1 {_EXAMPLE}",
    undo="marks the same clients again",
):
    """Unblock several clients: the marked ones of a list or of networks."""

    def plan(self, state: MarkedTable) -> Plan:
        least = state.limits.get_mark(self.table, self.mark)
        marked = [
            entry.key
            for entry in state.entries.values()
            if entry.counters.get(self.mark, 0) >= least and self._has_key(entry.key)
        ]
        if not marked:
            return Plan(f"none of {self.addresses} is marked in {self.table}")
        if len(marked) > _MOST:
            raise Refused(
                f"{len(marked):,} marked clients are in {self.addresses}, and one request "
                f"unblocks up to {_MOST}: narrow the networks, or request abusers empty"
            )
        steps = [
            self.make_step(state, key, old=least, new=0) for key in sorted(marked, key=_parse_key)
        ]
        notes = [
            "Other counters stay: a client that is above a limit is marked again on its next "
            "request. `abusers show` shows which."
        ]
        return Plan(f"{len(marked)} clients of {self.addresses} are marked", steps, notes)

    def _has_key(self, key: str) -> bool:
        address = _parse_key(key)
        return any(
            address.version == network.version and address in network for network in self.networks
        )


def _parse_key(key: str) -> IPv4Address | IPv6Address:
    (address,) = ip_network(key)
    return address
