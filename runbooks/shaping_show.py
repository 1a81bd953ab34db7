from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors import shaping
from connectors.command import Ask
from connectors.shaping import Card, Queue
from runbooks import Check, Host, Report, Table


@dataclass(frozen=True)
class Shaping:
    """All interfaces, and the classes of those where somebody has set up htb."""

    cards: Mapping[str, Card]
    classes: Mapping[str, Sequence[str]]


class ShowShaping(Check[Shaping], words="shaping show", example="web1"):
    """See how much each interface of a host may send and take in, and what that has dropped."""

    host: Host

    def read(self, ask: Ask) -> Shaping:
        cards = ask(self.host, shaping.cards())
        shared = [
            card.name for card in cards.values() if any(each.kind == "htb" for each in card.others)
        ]
        return Shaping(cards, {name: ask(self.host, shaping.classes(name)) for name in shared})

    def report(self, found: Shaping) -> Report:
        rows = [row for card in found.cards.values() for row in _rows(card, found.classes)]
        limited = [card for card in found.cards.values() if card.down or card.up]
        told = "; ".join(f"{card.name}: {card.rates}" for card in limited)
        findings = [line for card in found.cards.values() for line in _findings(card)]
        return Report(
            f"{self.host} limits {told}" if told else f"{self.host} has no limit of Keyturn's",
            healthy=not findings,
            findings=findings,
            table=Table(("Interface", "Way", "Limit", "Dropped", "Held back"), rows)
            if rows
            else None,
        )


def _rows(card: Card, classes: Mapping[str, Sequence[str]]) -> Iterator[Sequence[str]]:
    for way, queue in (("in", card.down), ("out", card.up)):
        if queue:
            yield _row(card, way, f"{queue.rate or 0:,} kbit/s", queue)
    for queue in card.others:
        way = "in" if queue.kind in ("ingress", "clsact") else "out"
        rate = f", {queue.rate:,} kbit/s" if queue.rate else ""
        shared = classes.get(card.name, ()) if queue.kind == "htb" else ()
        shares = "".join(f"; {each}" for each in shared)
        yield _row(card, way, f"{queue.kind} of somebody else's{rate}{shares}", queue)


def _row(card: Card, way: str, limit: str, queue: Queue) -> Sequence[str]:
    return (card.name, way, limit, f"{queue.dropped:,}", f"{queue.overlimits:,}")


def _findings(card: Card) -> Iterator[str]:
    if card.probation:
        yield (
            f"the limits of {card.name} are on probation: unless they are kept within minutes, "
            "the host puts those of before back"
        )
    for queue in card.others:
        yield (
            f"{card.name} has a queue ({queue.kind}) that Keyturn has not put there: `tc -s qdisc "
            f"show dev {card.name}` on the host tells more"
        )
