from collections.abc import Mapping

from connectors import shaping
from connectors.command import Ask
from connectors.shaping import Card, Rates
from runbooks import Change, Host, InterfaceName, Plan, Refused, Step


class ClearShaping(
    Change[Mapping[str, Card]],
    words="shaping clear",
    example="web1 eth0",
    undo="sets the limits of before",
):
    """Take away the limits that Keyturn has set on an interface."""

    host: Host
    interface: InterfaceName

    def read(self, ask: Ask) -> Mapping[str, Card]:
        return ask(self.host, shaping.cards())

    def plan(self, cards: Mapping[str, Card]) -> Plan:
        card = cards.get(self.interface)
        if card is None:
            raise Refused(
                f"{self.host} has no interface {self.interface}: it has {', '.join(cards)}"
            )
        if card.probation:
            raise Refused(
                f"limits of {card.name} are on probation: ask again in some minutes, when they "
                "are kept or taken back"
            )
        if card.rates == Rates():
            return Plan(_nothing(card))
        step = Step(
            f"Take the limits of {card.name} away",
            self.host,
            do=shaping.settle(card.name, Rates()),
            undo=shaping.settle(card.name, card.rates),
            before=str(card.rates),
            after=str(Rates()),
        )
        return Plan(
            f"{card.name} has {card.rates}",
            [step],
            ["What was held back comes at once: whatever is behind the line may feel it."],
        )


def _nothing(card: Card) -> str:
    if not card.others:
        return f"{card.name} has no limit"
    kinds = ", ".join(queue.kind for queue in card.others)
    return f"{card.name} has no limit of Keyturn's; the queue there ({kinds}) is left as it is"
