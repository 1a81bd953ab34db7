from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectors import haproxy, haproxy_limits, haproxy_peers
from connectors.command import QueryRunner
from connectors.haproxy_limits import TableLimit, TableLimits, format_amount
from connectors.haproxy_peers import Peer
from connectors.stick_table import TableEntry, TableHead
from runbooks import (
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

# So many of the marked clients are named to the people who decide.
_NAMED = 5


@dataclass(frozen=True)
class MarkedClients:
    """Everybody in a table. marked: those at or above the mark.

    busy: the marked ones that are above a limit of another table just now, and by how much.
    sharing: the peers that have a copy of the table.
    """

    head: TableHead
    marked: Sequence[TableEntry]
    limits: TableLimits
    excesses: Mapping[str, str] = field(default_factory=dict[str, str])
    peers: Sequence[Peer] = ()

    @property
    def releasable(self) -> tuple[TableEntry, ...]:
        """Those whose next request does not mark them again."""
        return tuple(entry for entry in self.marked if entry.key not in self.excesses)


class EmptyTable(Change[MarkedClients], words="abusers empty", example="lb1"):
    """Let everybody back in: clear a whole stick table of HAProxy, which cannot be undone."""

    host: Host = make_host_field("haproxy")
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, run_query: QueryRunner) -> MarkedClients:
        heads = run_query(self.host, haproxy.query_tables())
        head = haproxy.find_table_head(self.table, heads)
        limits = haproxy_limits.read_limits(run_query, self.host)
        least = limits.get_mark(self.table, self.mark)
        try:
            marked = haproxy.read_entries_at_least(
                run_query, self.host, self.table, self.mark, least
            )
        except haproxy.MissingCounterError as missing:
            raise Refused(str(missing)) from None
        others = {each.name for each in heads if each.type == head.type} - {self.table}
        asked = [each for each in limits.limits if marked and each.table in others]
        return MarkedClients(
            head,
            marked,
            limits,
            self._read_excesses(run_query, asked, {entry.key for entry in marked}),
            haproxy_peers.list_sharing_peers(
                self.table, run_query(self.host, haproxy.query_peers())
            ),
        )

    def _read_excesses(
        self, run_query: QueryRunner, limits: Sequence[TableLimit], keys: set[str]
    ) -> Mapping[str, str]:
        busy: dict[str, str] = {}
        for limit in limits:
            for entry in self._read_entries_above(run_query, limit):
                if entry.key in keys:
                    busy[entry.key] = f"{format_amount(entry, limit.counter)} at {limit.table}"
        return busy

    def _read_entries_above(
        self, run_query: QueryRunner, limit: TableLimit
    ) -> tuple[TableEntry, ...]:
        """Return who is above a limit; nobody, if what runs does not keep what the file says."""
        is_array = limit.counter.startswith(("gpc", "gpt"))
        if not is_array and not run_query(
            self.host, haproxy.query_has_counter(limit.table, limit.counter)
        ):
            return ()
        try:
            found = haproxy.read_entries_at_least(
                run_query, self.host, limit.table, limit.counter, limit.threshold
            )
        except haproxy.MissingCounterError:
            return ()
        return found

    def plan(self, crowd: MarkedClients) -> Plan:
        if not crowd.marked:
            return Plan(
                f"nobody is marked in {self.table} (entries that it holds: {crowd.head.used:,})"
            )
        if not crowd.releasable:
            # It would be no work that anybody could see done: that is what proves it, too.
            return Plan(
                f"everybody who is marked in {self.table} is above a limit now, and the next "
                f"request marks them again: {_format_some(crowd.excesses)}"
            )
        step = Step(
            f"Forget every entry of {self.table}",
            self.host,
            do=haproxy.empty_table(crowd.head),
            undo=NoUndo(
                "HAProxy forgets all entries with their counters and times; only traffic makes "
                "new ones"
            ),
            before=f"some are marked ({self.mark})",
            after="nobody is marked",
        )
        because = (
            f"{len(crowd.marked):,} of {crowd.head.used:,} entries of {self.table} are marked"
        )
        return Plan(because, [step], [*self._list_notes(crowd)])

    def _list_notes(self, crowd: MarkedClients) -> Iterator[str]:
        worst = sorted(crowd.marked, key=self._rank_entry)[:_NAMED]
        named = ", ".join(
            f"{entry.key} ({entry.counters[self.mark]:,}, {entry.expiry})" for entry in worst
        )
        more = len(crowd.marked) - len(worst)
        yield f"Marked ({self.mark}): {named}{f' and {more:,} more' if more else ''}."
        yield "What is counted of the others in this table is gone with it."
        yield "To let one client in, and with an undo, ask for `abusers clear`."
        if crowd.excesses:
            yield (
                f"{len(crowd.excesses):,} of them are above a limit now, and their next request "
                f"marks them again: {_format_some(crowd.excesses)}."
            )
        elif crowd.limits.error:
            yield (
                "Whether their next request marks them again is not known, as the limits are "
                f"not: {crowd.limits.error}."
            )
        held = sum(bool(entry.use_count) for entry in crowd.marked)
        if held:
            yield (
                f"{held:,} of them have a connection open: HAProxy passes over their entries, "
                "and they stay marked."
            )
        yield from haproxy_peers.format_copies(self.table, crowd.peers)

    def _rank_entry(self, entry: TableEntry) -> tuple[int, int, str]:
        return -entry.counters.get(self.mark, 0), -entry.expires_ms, entry.key


def _format_some(busy: Mapping[str, str]) -> str:
    named = [f"{key} ({much})" for key, much in sorted(busy.items())[:_NAMED]]
    more = len(busy) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")
