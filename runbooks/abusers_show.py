from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors import haproxy, haproxy_limits, haproxy_peers
from connectors.command import QueryRunner
from connectors.haproxy_limits import Excess, TableLimits, format_amount
from connectors.haproxy_peers import Peer
from connectors.stick_table import TableEntry, TableHead
from runbooks import Check, CounterName, Host, Report, Table, TableName, make_host_field
from runbooks._abusers import read_marked

# How many clients are listed with the reason; the others are counted.
_LISTED = 25


@dataclass(frozen=True)
class ListedAbuser:
    """One marked client."""

    entry: TableEntry
    other_entries: Mapping[str, TableEntry]
    """Its entries in other tables, by table."""


@dataclass(frozen=True)
class AbuserList:
    """The marked clients of a table."""

    total: int
    """How many clients are marked."""
    listed: Sequence[ListedAbuser]
    """The worst of them, worst first."""
    limits: TableLimits
    peers: Sequence[Peer] = ()
    """The peers that have a copy of the table."""


class ShowAbusers(
    Check[AbuserList],
    words="abusers show",
    also_called=("blocked clients", "who is blocked"),
    example="lb1",
    columns=("Client", "Time left", "If unblocked", "Counters", "Other tables"),
):
    """List the clients that HAProxy has marked as abusers, for how long, and why."""

    host: Host = make_host_field("haproxy")
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, run_query: QueryRunner) -> AbuserList:
        heads = run_query(self.host, haproxy.query_tables())
        head = haproxy.find_table_head(self.table, heads)
        limits = haproxy_limits.read_limits(run_query, self.host)
        marked = read_marked(run_query, self.host, self.table, self.mark, limits)
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
            return Report(f"No client is marked in {self.table} on {self.host}")
        listed = sorted(abusers.listed, key=lambda abuser: not self._list_excesses(abuser, limits))
        found = [self._format_finding(abuser, limits) for abuser in listed]
        if len(abusers.listed) < abusers.total:
            found.append(f"{abusers.total - len(abusers.listed):,} more are marked")
        if limits.error:
            found.append(f"The limits could not be read: {limits.error}")
        elif not limits.list_limits(self.table, self.mark):
            found.append(
                f"No condition in the configuration uses {self.mark} of {self.table}: "
                "marked clients may not be blocked"
            )
        found.extend(haproxy_peers.format_copies(self.table, abusers.peers))
        are = "client is" if abusers.total == 1 else "clients are"
        verb = "blocked" if limits.list_limits(self.table, self.mark) else "marked"
        return Report(
            f"{abusers.total:,} {are} {verb} in {self.table} on {self.host}",
            findings=found,
            table=Table(
                self.columns,
                [self._format_row(abuser, limits) for abuser in listed],
            ),
        )

    def _list_excesses(self, abuser: ListedAbuser, limits: TableLimits) -> list[Excess]:
        """Return why it was marked: its counters above limits, without the mark itself."""
        return [
            excess
            for table, entry in {self.table: abuser.entry, **abuser.other_entries}.items()
            for excess in limits.list_excesses(table, entry)
            if (table, excess.limit.counter) != (self.table, self.mark)
        ]

    def _format_finding(self, abuser: ListedAbuser, limits: TableLimits) -> str:
        reason = ", ".join(str(excess) for excess in self._list_excesses(abuser, limits))
        verb = "blocked" if limits.list_limits(self.table, self.mark) else "marked"
        rates = _format_rates({self.table: abuser.entry, **abuser.other_entries}, limits)
        count = abuser.entry.counters.get(self.mark, 0) if self.mark.startswith("gpc") else 0
        times = f", counted {count:,} times" if count > 1 else ""
        return f"{abuser.entry.key} is {verb} {abuser.entry.expiry}{times}: {reason or rates}"

    def _format_row(self, abuser: ListedAbuser, limits: TableLimits) -> Sequence[str]:
        entry = abuser.entry
        elsewhere = "; ".join(
            f"{table}: {_format_counters(each)}"
            for table, each in sorted(abuser.other_entries.items())
        )
        if not limits.limits:
            then = "unknown"
        else:
            then = "blocked again" if self._list_excesses(abuser, limits) else "stays unblocked"
        return entry.key, entry.expiry, then, _format_counters(entry), elsewhere


def _read_other_entries(
    run_query: QueryRunner, host: str, others: Sequence[TableHead], entry: TableEntry
) -> Mapping[str, TableEntry]:
    found = {head.name: run_query(host, haproxy.query_entry(head, entry.key)) for head in others}
    return {name: each for name, each in found.items() if each is not None}


def _format_rates(known: Mapping[str, TableEntry], limits: TableLimits) -> str:
    """Return the rates of a client that is above no known limit."""
    rates = ", ".join(
        f"{format_amount(entry, name)} at {table}"
        for table, entry in known.items()
        for name in entry.rates
    )
    if limits.limits:
        return f"it is below all limits now ({rates})" if rates else "it is below all limits now"
    return rates or "no table has rates for it"


def _format_counters(entry: TableEntry) -> str:
    counters = [f"{name} {value:,}" for name, value in entry.counters.items()]
    return ", ".join([*counters, *(format_amount(entry, name) for name in entry.rates)])
