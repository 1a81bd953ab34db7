from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors import shaping
from connectors.command import QueryRunner
from connectors.probation import NOT_ARMED, ProbationStatus, query_probation
from connectors.shaping import QueueingDiscipline, ShapedInterface
from runbooks import Check, Host, Report, Table


@dataclass(frozen=True)
class InterfaceShaping:
    """All interfaces, and the htb classes of those that another program has set up."""

    interfaces: Mapping[str, ShapedInterface]
    classes: Mapping[str, Sequence[str]]
    probation: ProbationStatus = NOT_ARMED


class ShowShaping(
    Check[InterfaceShaping],
    words="shaping show",
    example="web1",
    columns=("Interface", "Direction", "Limit", "Dropped", "Delayed"),
):
    """Show the traffic limits of a host's interfaces, and how many packets they dropped."""

    host: Host

    def read(self, run_query: QueryRunner) -> InterfaceShaping:
        cards = run_query(self.host, shaping.query_interfaces())
        shared = [
            card.name
            for card in cards.values()
            if any(each.kind == "htb" for each in card.foreign_queues)
        ]
        return InterfaceShaping(
            cards,
            {name: run_query(self.host, shaping.query_classes(name)) for name in shared},
            run_query(self.host, query_probation("shaping")),
        )

    def report(self, state: InterfaceShaping) -> Report:
        rows = [
            row for card in state.interfaces.values() for row in _list_rows(card, state.classes)
        ]
        limited = [card for card in state.interfaces.values() if card.down_queue or card.up_queue]
        limits = "; ".join(f"{card.name}: {card.rates}" for card in limited)
        findings = [line for card in state.interfaces.values() for line in _list_findings(card)]
        return Report.from_findings(
            f"{self.host} limits {limits}" if limits else f"{self.host} has no limit from Keyturn",
            findings,
            notes=state.probation.list_notes("the limits"),
            table=Table(self.columns, rows),
        )


def _list_rows(
    card: ShapedInterface, classes: Mapping[str, Sequence[str]]
) -> Iterator[Sequence[str]]:
    for way, queue in (("in", card.down_queue), ("out", card.up_queue)):
        if queue:
            yield _format_row(card, way, f"{queue.rate or 0:,} kbit/s", queue)
    for queue in card.foreign_queues:
        way = "in" if queue.kind in ("ingress", "clsact") else "out"
        rate = f", {queue.rate:,} kbit/s" if queue.rate else ""
        shared = classes.get(card.name, ()) if queue.kind == "htb" else ()
        shares = "".join(f"; {each}" for each in shared)
        yield _format_row(card, way, f"{queue.kind}, not from Keyturn{rate}{shares}", queue)


def _format_row(
    card: ShapedInterface, way: str, limit: str, queue: QueueingDiscipline
) -> Sequence[str]:
    return (card.name, way, limit, f"{queue.dropped:,}", f"{queue.overlimits:,}")


def _list_findings(card: ShapedInterface) -> Iterator[str]:
    for queue in card.foreign_queues:
        yield (
            f"{card.name} has a queue ({queue.kind}) that is not from Keyturn: run `tc -s qdisc "
            f"show dev {card.name}` on the host for details"
        )
