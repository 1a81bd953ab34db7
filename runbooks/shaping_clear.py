from collections.abc import Mapping

from connectors import shaping
from connectors.command import QueryRunner
from connectors.probation import Probation
from connectors.shaping import Rates, ShapedInterface
from runbooks import Change, Host, InterfaceName, Plan, Refused, Step


class ClearShaping(
    Change[Mapping[str, ShapedInterface]],
    words="shaping clear",
    example="web1 eth0",
    undo="restores the previous limits, on probation",
    sets="shaping {interface}",
):
    """Remove the limits that Keyturn has set on an interface."""

    host: Host
    interface: InterfaceName

    def read(self, run_query: QueryRunner) -> Mapping[str, ShapedInterface]:
        return run_query(self.host, shaping.query_interfaces())

    def get_probation(self) -> Probation:
        return shaping.make_probation(self.interface)

    def plan(self, cards: Mapping[str, ShapedInterface]) -> Plan:
        card = cards.get(self.interface)
        if card is None:
            raise Refused(
                f"{self.host} has no interface {self.interface}: it has {', '.join(cards)}"
            )
        if card.rates == Rates():
            return Plan(_format_no_limit(card))
        step = Step(
            f"Remove the limits of {card.name}",
            self.host,
            do=shaping.try_limits(card.name, Rates()),
            undo=shaping.try_limits(card.name, card.rates),
            before=str(card.rates),
            after=str(Rates()),
        )
        return Plan(
            f"{card.name} has {card.rates}",
            [step],
            ["Delayed traffic passes immediately, which may affect other systems on the line."],
        )


def _format_no_limit(card: ShapedInterface) -> str:
    if not card.foreign_queues:
        return f"{card.name} has no limit"
    kinds = ", ".join(queue.kind for queue in card.foreign_queues)
    return f"{card.name} has no limit from Keyturn; its queue ({kinds}) is not changed"
