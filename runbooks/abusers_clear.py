from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from connectors import haproxy, haproxy_limits, haproxy_peers
from connectors.command import QueryRunner, Shell
from connectors.haproxy_limits import TableLimits
from connectors.haproxy_peers import Peer
from connectors.stick_table import TableEntry, TableHead
from runbooks import (
    Address,
    Change,
    CounterName,
    Host,
    NoUndo,
    Plan,
    Refused,
    Step,
    TableName,
    make_host_field,
)
from runbooks._abusers import read_entry


@dataclass(frozen=True)
class Abuser:
    """One address in HAProxy's tables."""

    head: TableHead
    entry: TableEntry | None
    counter_names: Mapping[str, str]
    """HAProxy's spelling of each counter that can be restored."""
    limits: TableLimits
    other_entries: Mapping[str, TableEntry]
    """The entries of the address in other tables with limits, by table."""
    peers: Sequence[Peer] = ()
    """The peers that have a copy of the table."""


class ClearAbuser(
    Change[Abuser],
    words="abusers clear",
    also_called=("unban", "release", "unblock client"),
    example="lb1 203.0.113.9",
    undo="restores the entry",
):
    """Unblock an address that HAProxy has marked as an abuser."""

    host: Host = make_host_field("haproxy")
    address: Address = Field(json_schema_extra={"lists": "abusers", "within": ["table", "mark"]})
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, run_query: QueryRunner) -> Abuser:
        heads = run_query(self.host, haproxy.query_tables())
        head = haproxy.find_table_head(self.table, heads)
        entry = read_entry(run_query, self.host, head, self.address)
        limits = haproxy_limits.read_limits(run_query, self.host)
        if entry is None:
            return Abuser(head, None, {}, limits, {})
        others = [
            each
            for each in heads
            if each.type == head.type and each.name in limits.list_tables() - {head.name}
        ]
        entries = {
            each.name: run_query(self.host, haproxy.query_entry(each, entry.key))
            for each in others
        }
        return Abuser(
            head,
            entry,
            haproxy.read_counter_names(
                run_query, self.host, self.table, haproxy.list_restorable_counters(entry)
            ),
            limits,
            {name: found for name, found in entries.items() if found},
            haproxy_peers.list_sharing_peers(
                self.table, run_query(self.host, haproxy.query_peers())
            ),
        )

    def plan(self, abuser: Abuser) -> Plan:
        entry = abuser.entry
        if entry is None:
            return Plan(f"{self.address} is not in table {self.table}")
        if self.mark not in entry.counters:
            raise Refused(
                f"{self.table} has no {self.mark}: set mark to the counter that marks abusers"
            )
        marks_from = abuser.limits.get_mark(self.table, self.mark)
        if entry.counters[self.mark] < marks_from:
            return Plan(
                f"{self.address} is in {self.table} but not marked: {self.mark} is "
                f"{entry.counters[self.mark]}, and it is marked from {marks_from}"
            )
        step = Step(
            f"Unblock {self.address}",
            self.host,
            do=haproxy.clear_entry(abuser.head, entry.key),
            undo=self._make_undo(abuser, entry),
            before=f"marked ({self.mark})",
            after=f"not in {self.table}",
        )
        return Plan(f"{self.address} is marked {entry.expiry}", [step], _list_notes(abuser, entry))

    def _make_undo(self, abuser: Abuser, entry: TableEntry) -> Shell | NoUndo:
        if self.mark not in abuser.counter_names:
            return NoUndo(f"this HAProxy cannot set {self.mark}, which is in an array of counters")
        return haproxy.restore_entry(abuser.head, entry, abuser.counter_names)


def _list_notes(abuser: Abuser, entry: TableEntry) -> list[str]:
    notes = ["Undo restores the counters; the remaining time and all rates start over."]
    lost = sorted(haproxy.list_restorable_counters(entry).keys() - abuser.counter_names.keys())
    if lost:
        notes.append(f"Undo cannot restore {', '.join(lost)}: this HAProxy cannot set it.")
    if entry.use_count:
        count = "a connection" if entry.use_count == 1 else f"{entry.use_count} connections"
        notes.append(
            f"It has {count} open. HAProxy keeps its entry until that ends, so clearing fails."
        )
    notes.extend(haproxy_peers.format_copies(abuser.head.name, abuser.peers))
    again = [
        str(excess)
        for table, known in abuser.other_entries.items()
        for excess in abuser.limits.list_excesses(table, known)
    ]
    if again:
        notes.append(
            "It will be blocked again on its next request unless it slows down: "
            f"{', '.join(again)}."
        )
    elif abuser.limits.error:
        notes.append(
            "It is unknown whether it will be blocked again on its next request: the limits "
            f"could not be read ({abuser.limits.error})."
        )
    return notes
