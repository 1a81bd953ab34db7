from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import shaping, tcp_window
from connectors.command import QueryRunner
from connectors.probation import Probation
from connectors.shaping import MAX_RATE, MIN_RATE, Rates, ShapedInterface
from runbooks import Address, Change, Host, InterfaceName, Leg, Plan, Refused, Step

Rate = Annotated[
    int | None,
    Field(
        ge=MIN_RATE,
        le=MAX_RATE,
        description=f"kbit/s, {MIN_RATE} to {MAX_RATE}; unchanged if left empty",
    ),
]


@dataclass(frozen=True)
class ShapingState:
    """All interfaces, and the round trip to the peer."""

    interfaces: Mapping[str, ShapedInterface]
    round_trip: float | None
    """Seconds; None without a peer, or if it does not answer."""


class SetShaping(
    Change[ShapingState],
    words="shaping set",
    also_called=("bandwidth limit", "throttle"),
    example="web1 eth0 down=20000 up=10000 peer=198.51.100.7",
    undo="restores the previous limits, on probation",
    sets="shaping {interface}",
):
    """Limit the download and upload rate of an interface, until the next boot."""

    host: Host
    interface: InterfaceName
    down: Rate = Field(default=None, title="Download rate")
    up: Rate = Field(default=None, title="Upload rate")
    peer: Annotated[
        Address | None, Field(description="An address to ping from the host, before and after")
    ] = None

    def read(self, run_query: QueryRunner) -> ShapingState:
        cards = run_query(self.host, shaping.query_interfaces())
        if self.peer is None:
            return ShapingState(cards, None)
        return ShapingState(
            cards, run_query(self.host, tcp_window.query_round_trip(str(self.peer)))
        )

    def get_probation(self) -> Probation:
        return shaping.make_probation(self.interface)

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, self.interface)]

    def plan(self, state: ShapingState) -> Plan:
        card = self._find_interface(state.interfaces)
        rates = Rates(self.down or card.rates.down, self.up or card.rates.up)
        far = list(self._list_distance(state.round_trip))
        if rates == card.rates:
            # Part of the verification, to show the effect of the limit on the round trip.
            return Plan("; ".join([f"{card.name} is limited to {rates}", *far]))
        step = Step(
            f"Limit {card.name}",
            self.host,
            do=shaping.try_limits(card.name, rates),
            undo=shaping.try_limits(card.name, card.rates),
            before=str(card.rates),
            after=str(rates),
        )
        return Plan(
            f"{card.name} has {card.rates}",
            [step],
            [*(f"{each}." for each in far), *_list_notes(rates)],
        )

    def _find_interface(self, cards: Mapping[str, ShapedInterface]) -> ShapedInterface:
        if not (self.down or self.up):
            raise Refused("no limit is given: set down=, up= or both, in kbit/s")
        card = cards.get(self.interface)
        if card is None:
            there = ", ".join(each.name for each in cards.values() if not each.is_loopback)
            raise Refused(f"{self.host} has no interface {self.interface}: it has {there}")
        if card.is_loopback:
            raise Refused(f"{card.name} is the loopback interface: choose another one")
        if card.foreign_queues:
            kinds = ", ".join(queue.kind for queue in card.foreign_queues)
            raise Refused(
                f"{card.name} has a queue ({kinds}) from another program, which Keyturn could not "
                "restore: remove it on the host first, with tc qdisc del"
            )
        return card

    def _list_distance(self, seconds: float | None) -> Iterator[str]:
        if self.peer is not None:
            far = (
                "does not answer pings" if seconds is None else f"is {seconds * 1000:.1f} ms away"
            )
            yield f"{self.peer} {far} now"


def _list_notes(rates: Rates) -> Iterator[str]:
    yield "All traffic of the interface shares the limit, also logins and Keyturn's own."
    yield "Packets wait for at most 50 ms and are then dropped, which slows connections down."
    if rates.down:
        yield "Incoming packets are dropped after they arrive: it does not help against a flood."
    yield "A reboot of the host removes the limits."
