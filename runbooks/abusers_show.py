from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors import haproxy, haproxy_limits, haproxy_peers
from connectors.command import QueryRunner
from connectors.haproxy_limits import Excess, TableLimits, format_amount
from connectors.haproxy_peers import Peer
from connectors.stick_table import TableEntry, TableHead
from runbooks import Check, CounterName, Host, Refused, Report, Table, TableName, make_host_field

# Of so many clients it is told why they are blocked; the rest are counted.
_LISTED = 25


@dataclass(frozen=True)
class ListedAbuser:
    """One marked client. elsewhere: what the other tables know of it, by their names."""

    entry: TableEntry
    other_entries: Mapping[str, TableEntry]


@dataclass(frozen=True)
class AbuserList:
    """The marked clients, worst first: `listed` in full, of altogether `total`.

    sharing: the peers that have a copy of the table.
    """

    total: int
    listed: Sequence[ListedAbuser]
    limits: TableLimits
    peers: Sequence[Peer] = ()


class ShowAbusers(Check[AbuserList], words="abusers show", example="lb1"):
    """See which clients HAProxy has marked as abusers, for how long still, and why."""

    host: Host = make_host_field("haproxy")
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, run_query: QueryRunner) -> AbuserList:
        heads = run_query(self.host, haproxy.query_tables())
        head = haproxy.find_table_head(self.table, heads)
        limits = haproxy_limits.read_limits(run_query, self.host)
        marked = sorted(self._read_marked(run_query, limits), key=self._rank_entry)
        others = [
            each
            for each in heads
            if each.name != head.name and each.type == head.type and each.used
            if head.has_address_keys and (not limits.limits or each.name in limits.list_tables())
        ]
        listed = [
            ListedAbuser(entry, _read_other_entries(run_query, self.host, others, entry))
            for entry in marked[:_LISTED]
        ]
        sharing = haproxy_peers.list_sharing_peers(
            self.table, run_query(self.host, haproxy.query_peers())
        )
        return AbuserList(len(marked), listed, limits, sharing)

    def report(self, abusers: AbuserList) -> Report:
        limits = abusers.limits
        if not abusers.total:
            return Report(f"{self.host} has marked nobody in {self.table}")
        listed = sorted(abusers.listed, key=lambda abuser: not self._list_excesses(abuser, limits))
        found = [self._format_finding(abuser, limits) for abuser in listed]
        if len(abusers.listed) < abusers.total:
            found.append(f"{abusers.total - len(abusers.listed):,} more are marked")
        if limits.error:
            found.append(f"The limits are not known: {limits.error}")
        elif not limits.list_limits(self.table, self.mark):
            found.append(
                f"No condition in the configuration asks for {self.mark} of {self.table}: "
                "it is not known that marked clients are blocked"
            )
        found.extend(haproxy_peers.format_copies(self.table, abusers.peers))
        people = "client" if abusers.total == 1 else "clients"
        return Report(
            f"{self.host} has marked {abusers.total:,} {people} in {self.table}",
            findings=found,
            table=Table(
                ("Client", "Time left", "If let in", "Counters", "Elsewhere"),
                [self._format_row(abuser, limits) for abuser in listed],
            ),
        )

    def _read_marked(self, run_query: QueryRunner, limits: TableLimits) -> list[TableEntry]:
        least = limits.get_mark(self.table, self.mark)
        try:
            return list(
                haproxy.read_entries_at_least(run_query, self.host, self.table, self.mark, least)
            )
        except haproxy.MissingCounterError as missing:
            raise Refused(str(missing)) from None

    def _rank_entry(self, entry: TableEntry) -> tuple[int, int, str]:
        return -entry.counters.get(self.mark, 0), -entry.expires_ms, entry.key

    def _list_excesses(self, abuser: ListedAbuser, limits: TableLimits) -> list[Excess]:
        """Return why it was marked: what it does above limits, and not the mark itself."""
        return [
            excess
            for table, entry in {self.table: abuser.entry, **abuser.other_entries}.items()
            for excess in limits.list_excesses(table, entry)
            if (table, excess.limit.counter) != (self.table, self.mark)
        ]

    def _format_finding(self, abuser: ListedAbuser, limits: TableLimits) -> str:
        why = ", ".join(str(excess) for excess in self._list_excesses(abuser, limits))
        verb = "blocked" if limits.list_limits(self.table, self.mark) else "marked"
        calm = _format_rates({self.table: abuser.entry, **abuser.other_entries}, limits)
        caught = abuser.entry.counters.get(self.mark, 0) if self.mark.startswith("gpc") else 0
        often = f", caught {caught:,} times" if caught > 1 else ""
        return f"{abuser.entry.key} is {verb} {abuser.entry.expiry}{often}: {why or calm}"

    def _format_row(self, abuser: ListedAbuser, limits: TableLimits) -> Sequence[str]:
        entry = abuser.entry
        elsewhere = "; ".join(
            f"{table}: {_format_counters(each)}"
            for table, each in sorted(abuser.other_entries.items())
        )
        if not limits.limits:
            then = "not known"
        else:
            then = "marked again at once" if self._list_excesses(abuser, limits) else "stays in"
        return entry.key, entry.expiry, then, _format_counters(entry), elsewhere


def _read_other_entries(
    run_query: QueryRunner, host: str, others: Sequence[TableHead], entry: TableEntry
) -> Mapping[str, TableEntry]:
    found = {head.name: run_query(host, haproxy.query_entry(head, entry.key)) for head in others}
    return {name: each for name, each in found.items() if each is not None}


def _format_rates(known: Mapping[str, TableEntry], limits: TableLimits) -> str:
    """Say what a client does that is above no limit that we know."""
    rates = ", ".join(
        f"{format_amount(entry, name)} at {table}"
        for table, entry in known.items()
        for name in entry.rates
    )
    if limits.limits:
        return f"it is above no limit now ({rates})" if rates else "it is above no limit now"
    return rates or "no table tells what it does"


def _format_counters(entry: TableEntry) -> str:
    counters = [f"{name} {value:,}" for name, value in entry.counters.items()]
    return ", ".join([*counters, *(format_amount(entry, name) for name in entry.rates)])
