from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors import haproxy, haproxy_limits, haproxy_peers
from connectors.command import Ask
from connectors.haproxy_limits import Excess, Limits, measured
from connectors.haproxy_peers import Peer
from connectors.stick_table import Entry, TableHead
from runbooks import Check, CounterName, Host, Refused, Report, Table, TableName, tagged

# Of so many clients it is told why they are blocked; the rest are counted.
_LISTED = 25


@dataclass(frozen=True)
class Abuser:
    """One marked client. elsewhere: what the other tables know of it, by their names."""

    entry: Entry
    elsewhere: Mapping[str, Entry]


@dataclass(frozen=True)
class Abusers:
    """The marked clients, worst first: `listed` in full, of altogether `total`.

    sharing: the peers that have a copy of the table.
    """

    total: int
    listed: Sequence[Abuser]
    limits: Limits
    sharing: Sequence[Peer] = ()


class ShowAbusers(Check[Abusers], words="abusers show", example="lb1"):
    """See which clients HAProxy has marked as abusers, for how long still, and why."""

    host: Host = tagged("haproxy")
    table: TableName = "http"
    mark: CounterName = "gpc0"

    def read(self, ask: Ask) -> Abusers:
        heads = ask(self.host, haproxy.tables())
        head = haproxy.pick(self.table, heads)
        limits = haproxy_limits.known(ask, self.host)
        marked = sorted(self._marked(ask, limits), key=self._worst_first)
        others = [
            each
            for each in heads
            if each.name != head.name and each.type == head.type and each.used
            if head.of_addresses and (not limits.found or each.name in limits.tables())
        ]
        listed = [
            Abuser(entry, _elsewhere(ask, self.host, others, entry)) for entry in marked[:_LISTED]
        ]
        sharing = haproxy_peers.sharing(self.table, ask(self.host, haproxy.peers()))
        return Abusers(len(marked), listed, limits, sharing)

    def report(self, abusers: Abusers) -> Report:
        limits = abusers.limits
        if not abusers.total:
            return Report(f"{self.host} has marked nobody in {self.table}")
        listed = sorted(abusers.listed, key=lambda abuser: not self._excesses(abuser, limits))
        found = [self._finding(abuser, limits) for abuser in listed]
        if len(abusers.listed) < abusers.total:
            found.append(f"{abusers.total - len(abusers.listed):,} more are marked")
        if limits.unknown:
            found.append(f"The limits are not known: {limits.unknown}")
        elif not limits.of(self.table, self.mark):
            found.append(
                f"No condition in the configuration asks for {self.mark} of {self.table}: "
                "it is not known that marked clients are blocked"
            )
        found.extend(haproxy_peers.copies(self.table, abusers.sharing))
        people = "client" if abusers.total == 1 else "clients"
        return Report(
            f"{self.host} has marked {abusers.total:,} {people} in {self.table}",
            findings=found,
            table=Table(
                ("Client", "Time left", "If let in", "Counters", "Elsewhere"),
                [self._row(abuser, limits) for abuser in listed],
            ),
        )

    def _marked(self, ask: Ask, limits: Limits) -> list[Entry]:
        least = limits.mark(self.table, self.mark)
        try:
            return list(haproxy.reaching(ask, self.host, self.table, self.mark, least))
        except haproxy.NotKept as missing:
            raise Refused(str(missing)) from None

    def _worst_first(self, entry: Entry) -> tuple[int, int, str]:
        return -entry.counters.get(self.mark, 0), -entry.expires_ms, entry.key

    def _excesses(self, abuser: Abuser, limits: Limits) -> list[Excess]:
        """Return why it was marked: what it does above limits, and not the mark itself."""
        return [
            excess
            for table, entry in {self.table: abuser.entry, **abuser.elsewhere}.items()
            for excess in limits.exceeded(table, entry)
            if (table, excess.limit.counter) != (self.table, self.mark)
        ]

    def _finding(self, abuser: Abuser, limits: Limits) -> str:
        why = ", ".join(str(excess) for excess in self._excesses(abuser, limits))
        verb = "blocked" if limits.of(self.table, self.mark) else "marked"
        calm = _calm({self.table: abuser.entry, **abuser.elsewhere}, limits)
        caught = abuser.entry.counters.get(self.mark, 0) if self.mark.startswith("gpc") else 0
        often = f", caught {caught:,} times" if caught > 1 else ""
        return f"{abuser.entry.key} is {verb} {abuser.entry.left}{often}: {why or calm}"

    def _row(self, abuser: Abuser, limits: Limits) -> Sequence[str]:
        entry = abuser.entry
        elsewhere = "; ".join(
            f"{table}: {_kept(each)}" for table, each in sorted(abuser.elsewhere.items())
        )
        if not limits.found:
            then = "not known"
        else:
            then = "marked again at once" if self._excesses(abuser, limits) else "stays in"
        return entry.key, entry.left, then, _kept(entry), elsewhere


def _elsewhere(
    ask: Ask, host: str, others: Sequence[TableHead], entry: Entry
) -> Mapping[str, Entry]:
    found = {head.name: ask(host, haproxy.entry(head, entry.key)) for head in others}
    return {name: each for name, each in found.items() if each is not None}


def _calm(known: Mapping[str, Entry], limits: Limits) -> str:
    """Say what a client does that is above no limit that we know."""
    rates = ", ".join(
        f"{measured(entry, name)} at {table}"
        for table, entry in known.items()
        for name in entry.rates
    )
    if limits.found:
        return f"it is above no limit now ({rates})" if rates else "it is above no limit now"
    return rates or "no table tells what it does"


def _kept(entry: Entry) -> str:
    counters = [f"{name} {value:,}" for name, value in entry.counters.items()]
    return ", ".join([*counters, *(measured(entry, name) for name in entry.rates)])
