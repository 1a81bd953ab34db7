from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectors import haproxy, haproxy_limits, haproxy_peers
from connectors.command import Ask
from connectors.haproxy_limits import Limit, Limits, measured
from connectors.haproxy_peers import Peer
from connectors.stick_table import Entry, TableHead
from runbooks import Change, CounterName, Host, NoUndo, Plan, Refused, Step, TableName, tagged

# So many of the marked clients are named to the people who decide.
_NAMED = 5


@dataclass(frozen=True)
class Crowd:
    """Everybody in a table. marked: those at or above the mark.

    busy: the marked ones that are above a limit of another table just now, and by how much.
    sharing: the peers that have a copy of the table.
    """

    head: TableHead
    marked: Sequence[Entry]
    limits: Limits
    busy: Mapping[str, str] = field(default_factory=dict[str, str])
    sharing: Sequence[Peer] = ()

    @property
    def freed(self) -> tuple[Entry, ...]:
        """Those whose next request does not mark them again."""
        return tuple(entry for entry in self.marked if entry.key not in self.busy)


class EmptyTable(Change[Crowd], words="abusers empty", example="lb1"):
    """Let everybody back in: clear a whole stick table of HAProxy, which cannot be undone."""

    host: Host = tagged("haproxy")
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, ask: Ask) -> Crowd:
        heads = ask(self.host, haproxy.tables())
        head = haproxy.pick(self.table, heads)
        limits = haproxy_limits.known(ask, self.host)
        least = limits.mark(self.table, self.mark)
        try:
            marked = haproxy.reaching(ask, self.host, self.table, self.mark, least)
        except haproxy.NotKept as missing:
            raise Refused(str(missing)) from None
        others = {each.name for each in heads if each.type == head.type} - {self.table}
        asked = [each for each in limits.found if marked and each.table in others]
        return Crowd(
            head,
            marked,
            limits,
            self._busy(ask, asked, {entry.key for entry in marked}),
            haproxy_peers.sharing(self.table, ask(self.host, haproxy.peers())),
        )

    def _busy(self, ask: Ask, limits: Sequence[Limit], keys: set[str]) -> Mapping[str, str]:
        busy: dict[str, str] = {}
        for limit in limits:
            for entry in self._above(ask, limit):
                if entry.key in keys:
                    busy[entry.key] = f"{measured(entry, limit.counter)} at {limit.table}"
        return busy

    def _above(self, ask: Ask, limit: Limit) -> tuple[Entry, ...]:
        """Return who is above a limit; nobody, if what runs does not keep what the file says."""
        is_array = limit.counter.startswith(("gpc", "gpt"))
        if not is_array and not ask(self.host, haproxy.keeps(limit.table, limit.counter)):
            return ()
        try:
            found = haproxy.reaching(ask, self.host, limit.table, limit.counter, limit.reached_at)
        except haproxy.NotKept:
            return ()
        return found

    def plan(self, crowd: Crowd) -> Plan:
        if not crowd.marked:
            return Plan(
                f"nobody is marked in {self.table} (entries that it holds: {crowd.head.used:,})"
            )
        if not crowd.freed:
            # It would be no work that anybody could see done: that is what proves it, too.
            return Plan(
                f"everybody who is marked in {self.table} is above a limit now, and the next "
                f"request marks them again: {_some(crowd.busy)}"
            )
        step = Step(
            f"Forget every entry of {self.table}",
            self.host,
            do=haproxy.empty(crowd.head),
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
        return Plan(because, [step], [*self._notes(crowd)])

    def _notes(self, crowd: Crowd) -> Iterator[str]:
        worst = sorted(crowd.marked, key=self._worst_first)[:_NAMED]
        named = ", ".join(
            f"{entry.key} ({entry.counters[self.mark]:,}, {entry.left})" for entry in worst
        )
        more = len(crowd.marked) - len(worst)
        yield f"Marked ({self.mark}): {named}{f' and {more:,} more' if more else ''}."
        yield "What is counted of the others in this table is gone with it."
        yield "To let one client in, and with an undo, ask for `abusers clear`."
        if crowd.busy:
            yield (
                f"{len(crowd.busy):,} of them are above a limit now, and their next request "
                f"marks them again: {_some(crowd.busy)}."
            )
        elif crowd.limits.unknown:
            yield (
                "Whether their next request marks them again is not known, as the limits are "
                f"not: {crowd.limits.unknown}."
            )
        held = sum(bool(entry.use) for entry in crowd.marked)
        if held:
            yield (
                f"{held:,} of them have a connection open: HAProxy passes over their entries, "
                "and they stay marked."
            )
        yield from haproxy_peers.copies(self.table, crowd.sharing)

    def _worst_first(self, entry: Entry) -> tuple[int, int, str]:
        return -entry.counters.get(self.mark, 0), -entry.expires_ms, entry.key


def _some(busy: Mapping[str, str]) -> str:
    named = [f"{key} ({much})" for key, much in sorted(busy.items())[:_NAMED]]
    more = len(busy) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")
