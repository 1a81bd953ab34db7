from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network

from connectors import haproxy, haproxy_limits
from connectors.command import QueryRunner
from connectors.haproxy_limits import TableLimits
from connectors.stick_table import InvalidKeyError, TableEntry, TableHead
from runbooks import (
    Address,
    Change,
    CounterName,
    Host,
    Plan,
    Refused,
    Step,
    TableName,
    make_host_field,
)

# Where the clients are our own people and machines. Python's `is_private` has more in it, such
# as the addresses for documentation.
_OWN_NETWORKS = tuple(
    ip_network(text)
    for text in (
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "100.64.0.0/10",
        "::1/128",
        "fc00::/7",
        "fe80::/10",
    )
)


@dataclass(frozen=True)
class ClientEntry:
    """What HAProxy knows of one address. spelling: how its mark is spelled to set it."""

    head: TableHead
    entry: TableEntry | None
    counter_name: str
    limits: TableLimits


class MarkAbuser(
    Change[ClientEntry],
    words="abusers mark",
    example="lb1 203.0.113.9",
    undo="takes the mark away",
):
    """Mark an address as an abuser, so that HAProxy blocks it until the mark expires."""

    host: Host = make_host_field("haproxy")
    address: Address
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, run_query: QueryRunner) -> ClientEntry:
        self._refuse_special_address()
        head = run_query(self.host, haproxy.query_table_head(self.table))
        try:
            entry = run_query(self.host, haproxy.query_entry(head, self.address))
        except InvalidKeyError as unfit:
            raise Refused(str(unfit)) from None
        spelling = haproxy.read_counter_names(run_query, self.host, self.table, [self.mark])
        if self.mark not in spelling:
            raise Refused(f"{self.table} keeps no {self.mark} that this HAProxy could set")
        limits = haproxy_limits.read_limits(run_query, self.host)
        return ClientEntry(head, entry, spelling[self.mark], limits)

    def plan(self, client: ClientEntry) -> Plan:
        value = client.entry.counters.get(self.mark, 0) if client.entry else 0
        marks_from = client.limits.get_mark(self.table, self.mark)
        if value >= marks_from:
            return Plan(f"{self.address} is marked already")
        step = Step(
            f"Mark {self.address} as an abuser",
            self.host,
            do=haproxy.mark_entry(client.head, self.address, client.counter_name, marks_from),
            # Not a clear: HAProxy would refuse that while the client has a connection open, and
            # it would take the entry's other counters along.
            undo=haproxy.mark_entry(client.head, self.address, client.counter_name, value),
            before="not marked",
            after=f"marked ({self.mark})",
        )
        return Plan(
            f"{self.address} is not marked in {self.table}", [step], self._list_notes(client)
        )

    def _refuse_special_address(self) -> None:
        everybody = self.address == IPv4Address("255.255.255.255")
        if self.address.is_unspecified or self.address.is_multicast or everybody:
            raise Refused(f"{self.address} is not the address of one client")

    def _list_notes(self, client: ClientEntry) -> list[str]:
        notes = [f"The mark goes by itself when the entry of {self.table} expires."]
        if any(self.address in network for network in _OWN_NETWORKS):
            notes.append(
                f"{self.address} is an address of your own networks: behind it may be monitoring, "
                "another proxy, or everyone in an office."
            )
        if client.limits.error:
            notes.append(
                "Whether marked clients are blocked is not known, as the limits are not: "
                f"{client.limits.error}."
            )
        elif not client.limits.list_limits(self.table, self.mark):
            notes.append(
                f"No condition in the configuration asks for {self.mark} of {self.table}: "
                "this mark may block nobody."
            )
        return notes
