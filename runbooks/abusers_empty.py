from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectors import haproxy, haproxy_limits, haproxy_peers
from connectors.command import QueryRunner
from connectors.haproxy_limits import TableLimit, TableLimits, format_amount
from connectors.haproxy_peers import Peer
from connectors.stick_table import TableEntry, TableHead
from runbooks import Change, CounterName, Host, Leg, NoUndo, Plan, Step, TableName, make_host_field
from runbooks._abusers import read_marked

# How many of the marked clients are listed.
_NAMED = 5


@dataclass(frozen=True)
class MarkedClients:
    """The marked clients of a table."""

    head: TableHead
    marked: Sequence[TableEntry]
    """The entries at or above the mark, the worst first."""
    limits: TableLimits
    excesses: Mapping[str, str] = field(default_factory=dict[str, str])
    """Which marked clients are above a limit of another table now, and their counter there."""
    peers: Sequence[Peer] = ()
    """The peers that have a copy of the table."""

    @property
    def releasable(self) -> tuple[TableEntry, ...]:
        """The marked clients that the next request does not mark again."""
        return tuple(entry for entry in self.marked if entry.key not in self.excesses)


class EmptyTable(Change[MarkedClients], words="abusers empty", example="lb1"):
    """Unblock all clients: empty a stick table of HAProxy. This cannot be undone."""

    host: Host = make_host_field("haproxy")
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, run_query: QueryRunner) -> MarkedClients:
        heads = run_query(self.host, haproxy.query_tables())
        head = haproxy.find_table_head(self.table, heads)
        limits = haproxy_limits.read_limits(run_query, self.host)
        marked = read_marked(run_query, self.host, self.table, self.mark, limits)
        others = {each.name for each in heads if each.type == head.type} - {self.table}
        limits_of_others = [each for each in limits.limits if marked and each.table in others]
        return MarkedClients(
            head,
            marked,
            limits,
            self._read_excesses(run_query, limits_of_others, {entry.key for entry in marked}),
            haproxy_peers.list_sharing_peers(
                self.table, run_query(self.host, haproxy.query_peers())
            ),
        )

    def _read_excesses(
        self, run_query: QueryRunner, limits: Sequence[TableLimit], keys: set[str]
    ) -> Mapping[str, str]:
        excesses: dict[str, str] = {}
        for limit in limits:
            for entry in self._read_entries_above(run_query, limit):
                if entry.key in keys:
                    excesses[entry.key] = f"{format_amount(entry, limit.counter)} at {limit.table}"
        return excesses

    def _read_entries_above(
        self, run_query: QueryRunner, limit: TableLimit
    ) -> tuple[TableEntry, ...]:
        """Return the entries above a limit; none if the running HAProxy has no such counter."""
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

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, "haproxy")]

    def plan(self, clients: MarkedClients) -> Plan:
        if not clients.marked:
            return Plan(f"no client is marked in {self.table} ({clients.head.used:,} entries)")
        if not clients.releasable:
            # The change would have no visible effect, so it could not be verified either.
            return Plan(
                f"all marked clients of {self.table} are above a limit now and will be marked "
                f"again on their next request: {_format_some(clients.excesses)}"
            )
        step = Step(
            f"Delete every entry of {self.table}",
            self.host,
            do=haproxy.empty_table(clients.head),
            undo=NoUndo(
                f"HAProxy forgets every entry of {self.table}; only traffic creates new ones"
            ),
            before=f"some clients are marked ({self.mark})",
            after="no client is marked",
        )
        because = (
            f"{len(clients.marked):,} of {clients.head.used:,} entries of {self.table} are marked"
        )
        return Plan(because, [step], [*self._list_notes(clients)])

    def _list_notes(self, clients: MarkedClients) -> Iterator[str]:
        worst = clients.marked[:_NAMED]
        named = ", ".join(
            f"{entry.key} ({entry.counters[self.mark]:,}, {entry.expiry})" for entry in worst
        )
        more = len(clients.marked) - len(worst)
        yield f"Marked ({self.mark}): {named}{f' and {more:,} more' if more else ''}."
        yield "The counters of all other clients in this table are deleted too."
        yield "To unblock one client, with an undo, request `abusers clear`."
        if clients.excesses:
            are = "is" if len(clients.excesses) == 1 else "are"
            yield (
                f"{len(clients.excesses):,} of them {are} above a limit and will be blocked again "
                f"on the next request: {_format_some(clients.excesses)}."
            )
        elif clients.limits.error:
            yield (
                "It is unknown whether they will be blocked again on their next request: the "
                f"limits could not be read ({clients.limits.error})."
            )
        held = sum(bool(entry.use_count) for entry in clients.marked)
        if held:
            yield (
                f"{held:,} of them have an open connection: HAProxy skips their entries, and "
                "they stay marked."
            )
        yield from haproxy_peers.format_copies(self.table, clients.peers)


def _format_some(excesses: Mapping[str, str]) -> str:
    named = [f"{key} ({amount})" for key, amount in sorted(excesses.items())[:_NAMED]]
    more = len(excesses) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")
