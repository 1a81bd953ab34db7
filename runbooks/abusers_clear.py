from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from connectors import haproxy, haproxy_limits, haproxy_peers
from connectors.command import Ask, Shell
from connectors.haproxy_limits import Limits
from connectors.haproxy_peers import Peer
from connectors.stick_table import Entry, TableHead, UnfitKey
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
    tagged,
)


@dataclass(frozen=True)
class Abuser:
    """What HAProxy knows of one address.

    spelling: how its counters are spelled to set them again. elsewhere: what the tables with
    limits know of it, by their names. sharing: the peers that have a copy of the table.
    """

    head: TableHead
    entry: Entry | None
    spelling: Mapping[str, str]
    limits: Limits
    elsewhere: Mapping[str, Entry]
    sharing: Sequence[Peer] = ()


class ClearAbuser(
    Change[Abuser],
    words="abusers clear",
    example="lb1 203.0.113.9",
    undo="sets the entry again",
):
    """Let an address back in that HAProxy has marked as an abuser."""

    host: Host = tagged("haproxy")
    address: Address = Field(json_schema_extra={"lists": "abusers", "within": ["table", "mark"]})
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, ask: Ask) -> Abuser:
        heads = ask(self.host, haproxy.tables())
        head = haproxy.pick(self.table, heads)
        try:
            entry = ask(self.host, haproxy.entry(head, self.address))
        except UnfitKey as unfit:
            raise Refused(str(unfit)) from None
        limits = haproxy_limits.known(ask, self.host)
        if entry is None:
            return Abuser(head, None, {}, limits, {})
        others = [
            each
            for each in heads
            if each.type == head.type and each.name in limits.tables() - {head.name}
        ]
        asked = {each.name: ask(self.host, haproxy.entry(each, entry.key)) for each in others}
        return Abuser(
            head,
            entry,
            haproxy.spelled(ask, self.host, self.table, haproxy.settable(entry)),
            limits,
            {name: found for name, found in asked.items() if found},
            haproxy_peers.sharing(self.table, ask(self.host, haproxy.peers())),
        )

    def plan(self, abuser: Abuser) -> Plan:
        entry = abuser.entry
        if entry is None:
            return Plan(f"{self.address} is not in {self.table}: nothing of it to clear")
        if self.mark not in entry.counters:
            raise Refused(
                f"{self.table} keeps no {self.mark}: name the counter that marks abusers"
            )
        marks_from = abuser.limits.mark(self.table, self.mark)
        if entry.counters[self.mark] < marks_from:
            return Plan(
                f"{self.address} is known in {self.table} but not marked: {self.mark} is "
                f"{entry.counters[self.mark]}, and only {marks_from} or more marks it"
            )
        step = Step(
            f"Let {self.address} back in",
            self.host,
            do=haproxy.clear_entry(abuser.head, entry.key),
            undo=self._undo(abuser, entry),
            before=f"marked ({self.mark})",
            after=f"not in {self.table}",
        )
        return Plan(f"{self.address} is marked {entry.left}", [step], _notes(abuser, entry))

    def _undo(self, abuser: Abuser, entry: Entry) -> Shell | NoUndo:
        if self.mark not in abuser.spelling:
            return NoUndo(
                f"this HAProxy cannot set {self.mark} of an array of counters; traffic can"
            )
        return haproxy.restore_entry(abuser.head, entry, abuser.spelling)


def _notes(abuser: Abuser, entry: Entry) -> list[str]:
    notes = ["An undo sets the counters again; the time left and all rates begin anew."]
    lost = sorted(haproxy.settable(entry).keys() - abuser.spelling.keys())
    if lost:
        notes.append(f"An undo cannot set {', '.join(lost)}: this HAProxy has no words for it.")
    if entry.use:
        count = "a connection" if entry.use == 1 else f"{entry.use} connections"
        notes.append(
            f"It has {count} open, and HAProxy keeps its entry until that ends: clearing fails "
            "while it is so."
        )
    notes.extend(haproxy_peers.copies(abuser.head.name, abuser.sharing))
    again = [
        str(excess)
        for table, known in abuser.elsewhere.items()
        for excess in abuser.limits.exceeded(table, known)
    ]
    if again:
        notes.append(f"Its next request marks it again, unless it slows down: {', '.join(again)}.")
    elif abuser.limits.unknown:
        notes.append(
            "Whether its next request marks it again is not known, as the limits are not: "
            f"{abuser.limits.unknown}."
        )
    return notes
