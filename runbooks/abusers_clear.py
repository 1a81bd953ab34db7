from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from connectors import haproxy, haproxy_limits, haproxy_peers
from connectors.command import QueryRunner, Shell
from connectors.haproxy_limits import TableLimits
from connectors.haproxy_peers import Peer
from connectors.stick_table import InvalidKeyError, TableEntry, TableHead
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


@dataclass(frozen=True)
class Abuser:
    """What HAProxy knows of one address.

    spelling: how its counters are spelled to set them again. elsewhere: what the tables with
    limits know of it, by their names. sharing: the peers that have a copy of the table.
    """

    head: TableHead
    entry: TableEntry | None
    counter_names: Mapping[str, str]
    limits: TableLimits
    other_entries: Mapping[str, TableEntry]
    peers: Sequence[Peer] = ()


class ClearAbuser(
    Change[Abuser],
    words="abusers clear",
    example="lb1 203.0.113.9",
    undo="sets the entry again",
):
    """Let an address back in that HAProxy has marked as an abuser."""

    host: Host = make_host_field("haproxy")
    address: Address = Field(json_schema_extra={"lists": "abusers", "within": ["table", "mark"]})
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, run_query: QueryRunner) -> Abuser:
        heads = run_query(self.host, haproxy.query_tables())
        head = haproxy.find_table_head(self.table, heads)
        try:
            entry = run_query(self.host, haproxy.query_entry(head, self.address))
        except InvalidKeyError as unfit:
            raise Refused(str(unfit)) from None
        limits = haproxy_limits.read_limits(run_query, self.host)
        if entry is None:
            return Abuser(head, None, {}, limits, {})
        others = [
            each
            for each in heads
            if each.type == head.type and each.name in limits.list_tables() - {head.name}
        ]
        asked = {
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
            {name: found for name, found in asked.items() if found},
            haproxy_peers.list_sharing_peers(
                self.table, run_query(self.host, haproxy.query_peers())
            ),
        )

    def plan(self, abuser: Abuser) -> Plan:
        entry = abuser.entry
        if entry is None:
            return Plan(f"{self.address} is not in {self.table}: nothing of it to clear")
        if self.mark not in entry.counters:
            raise Refused(
                f"{self.table} keeps no {self.mark}: name the counter that marks abusers"
            )
        marks_from = abuser.limits.get_mark(self.table, self.mark)
        if entry.counters[self.mark] < marks_from:
            return Plan(
                f"{self.address} is known in {self.table} but not marked: {self.mark} is "
                f"{entry.counters[self.mark]}, and only {marks_from} or more marks it"
            )
        step = Step(
            f"Let {self.address} back in",
            self.host,
            do=haproxy.clear_entry(abuser.head, entry.key),
            undo=self._make_undo(abuser, entry),
            before=f"marked ({self.mark})",
            after=f"not in {self.table}",
        )
        return Plan(f"{self.address} is marked {entry.expiry}", [step], _list_notes(abuser, entry))

    def _make_undo(self, abuser: Abuser, entry: TableEntry) -> Shell | NoUndo:
        if self.mark not in abuser.counter_names:
            return NoUndo(
                f"this HAProxy cannot set {self.mark} of an array of counters; traffic can"
            )
        return haproxy.restore_entry(abuser.head, entry, abuser.counter_names)


def _list_notes(abuser: Abuser, entry: TableEntry) -> list[str]:
    notes = ["An undo sets the counters again; the time left and all rates begin anew."]
    lost = sorted(haproxy.list_restorable_counters(entry).keys() - abuser.counter_names.keys())
    if lost:
        notes.append(f"An undo cannot set {', '.join(lost)}: this HAProxy has no words for it.")
    if entry.use_count:
        count = "a connection" if entry.use_count == 1 else f"{entry.use_count} connections"
        notes.append(
            f"It has {count} open, and HAProxy keeps its entry until that ends: clearing fails "
            "while it is so."
        )
    notes.extend(haproxy_peers.format_copies(abuser.head.name, abuser.peers))
    again = [
        str(excess)
        for table, known in abuser.other_entries.items()
        for excess in abuser.limits.list_excesses(table, known)
    ]
    if again:
        notes.append(f"Its next request marks it again, unless it slows down: {', '.join(again)}.")
    elif abuser.limits.error:
        notes.append(
            "Whether its next request marks it again is not known, as the limits are not: "
            f"{abuser.limits.error}."
        )
    return notes
