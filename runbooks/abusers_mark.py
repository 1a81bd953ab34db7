from dataclasses import dataclass

from connectors import haproxy, haproxy_limits
from connectors.command import QueryRunner
from connectors.haproxy_limits import TableLimits
from connectors.public_addresses import is_internal
from connectors.stick_table import TableEntry, TableHead
from runbooks import Address, Change, CounterName, Host, Plan, Step, TableName, make_host_field
from runbooks._abusers import format_mark_end, read_entry, read_mark_name, refuse_unmarkable


@dataclass(frozen=True)
class ClientEntry:
    """One address in a table of HAProxy."""

    head: TableHead
    entry: TableEntry | None
    counter_name: str
    """HAProxy's spelling of the mark."""
    limits: TableLimits


class MarkAbuser(
    Change[ClientEntry],
    words="abusers mark",
    also_called=("ban", "block client"),
    example="lb1 203.0.113.9",
    undo="removes the mark",
):
    """Mark an address as an abuser, so that HAProxy blocks it until the mark expires."""

    host: Host = make_host_field("haproxy")
    address: Address
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, run_query: QueryRunner) -> ClientEntry:
        protected = run_query(self.host, haproxy.query_protected_networks())
        refuse_unmarkable(self.address, protected)
        head = run_query(self.host, haproxy.query_table_head(self.table))
        entry = read_entry(run_query, self.host, head, self.address)
        name = read_mark_name(run_query, self.host, self.table, self.mark)
        return ClientEntry(head, entry, name, haproxy_limits.read_limits(run_query, self.host))

    def plan(self, client: ClientEntry) -> Plan:
        value = client.entry.counters.get(self.mark, 0) if client.entry else 0
        marks_from = client.limits.get_mark(self.table, self.mark)
        if value >= marks_from:
            return Plan(f"{self.address} is marked")
        step = Step(
            f"Mark {self.address} as an abuser",
            self.host,
            do=haproxy.mark_entry(client.head, self.address, client.counter_name, marks_from),
            # Not a clear: HAProxy refuses it while the client has an open connection, and it
            # would delete the entry's other counters.
            undo=haproxy.mark_entry(client.head, self.address, client.counter_name, value),
            before="not marked",
            after=f"marked ({self.mark})",
        )
        return Plan(
            f"{self.address} is not marked in {self.table}", [step], self._list_notes(client)
        )

    def _list_notes(self, client: ClientEntry) -> list[str]:
        notes = [format_mark_end(client.limits, self.table)]
        if is_internal(self.address):
            notes.append(
                f"{self.address} is a private address: it may be monitoring, another proxy, or "
                "everyone in an office."
            )
        if client.limits.error:
            notes.append(
                "It is unknown whether marked clients are blocked: the limits could not be read "
                f"({client.limits.error})."
            )
        elif not client.limits.list_limits(self.table, self.mark):
            notes.append(
                f"No condition in the configuration uses {self.mark} of {self.table}: "
                "this mark may block no one."
            )
        return notes
