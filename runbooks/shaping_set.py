from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import shaping, tcp_window
from connectors.command import QueryRunner
from connectors.shaping import MAX_RATE, MIN_RATE, Rates, ShapedInterface
from runbooks import Address, Change, Host, InterfaceName, Plan, Refused, Step

_BEGIN = "Begin a probation: the host puts the limits of before back by itself"
_END = "End the probation over a new connection"

Rate = Annotated[
    int | None,
    Field(
        ge=MIN_RATE,
        le=MAX_RATE,
        description=f"kbit/s, {MIN_RATE} to {MAX_RATE}; empty: left as it is",
    ),
]


@dataclass(frozen=True)
class ShapingState:
    """All interfaces, and the seconds to the peer and back; None if it is silent or not given."""

    interfaces: Mapping[str, ShapedInterface]
    round_trip: float | None


class SetShaping(
    Change[ShapingState],
    words="shaping set",
    example="web1 eth0 down=20000 up=10000 peer=198.51.100.7",
    undo="sets the limits of before, with a probation of its own",
):
    """Limit how much an interface takes in and sends, until the host's next start."""

    host: Host
    interface: InterfaceName
    down: Rate = Field(default=None, title="Download rate")
    up: Rate = Field(default=None, title="Upload rate")
    peer: Annotated[
        Address | None, Field(description="Whom to ping from the host before and after")
    ] = None

    def read(self, run_query: QueryRunner) -> ShapingState:
        cards = run_query(self.host, shaping.query_interfaces())
        if self.peer is None:
            return ShapingState(cards, None)
        return ShapingState(
            cards, run_query(self.host, tcp_window.query_round_trip(str(self.peer)))
        )

    def plan(self, found: ShapingState) -> Plan:
        card = self._find_interface(found.interfaces)
        rates = Rates(self.down or card.rates.down, self.up or card.rates.up)
        far = list(self._list_distance(found.round_trip))
        if rates == card.rates:
            # Told with the proof, so that people see what the limit did to the distance.
            return Plan("; ".join([f"{card.name} is limited to {rates}", *far]))
        return Plan(
            f"{card.name} has {card.rates}",
            self._make_steps(card, rates),
            [*(f"{each}." for each in far), *_list_notes(rates)],
        )

    def _find_interface(self, cards: Mapping[str, ShapedInterface]) -> ShapedInterface:
        if not (self.down or self.up):
            raise Refused("no limit is given: say down=, up= or both, in kbit/s")
        card = cards.get(self.interface)
        if card is None:
            there = ", ".join(each.name for each in cards.values() if not each.is_loopback)
            raise Refused(f"{self.host} has no interface {self.interface}: it has {there}")
        if card.is_loopback:
            raise Refused(
                f"{card.name} is the host's way to itself: name an interface that leads out"
            )
        if card.is_on_probation:
            raise Refused(
                f"limits of {card.name} are on probation, and nobody has kept them: ask again in "
                "some minutes, when the host has put those of before back"
            )
        if card.foreign_queues:
            kinds = ", ".join(queue.kind for queue in card.foreign_queues)
            raise Refused(
                f"{card.name} has a queue ({kinds}) that Keyturn has not put there and could not "
                "put back: take it away on the host first, with tc qdisc del"
            )
        return card

    def _make_steps(self, card: ShapedInterface, rates: Rates) -> Sequence[Step]:
        """Begin, try, keep. Undone from the last to the first they are the same three again."""
        name = card.name
        return [
            Step(
                _BEGIN,
                self.host,
                do=shaping.start_probation(name, card.rates),
                undo=shaping.keep_limits(name),
                undo_title=_END,
            ),
            Step(
                f"Limit {name}",
                self.host,
                do=shaping.try_limits(name, rates),
                undo=shaping.try_limits(name, card.rates),
                before=str(card.rates),
                after=str(rates),
            ),
            Step(
                _END,
                self.host,
                do=shaping.keep_limits(name),
                undo=shaping.start_probation(name, rates),
                undo_title=_BEGIN,
            ),
        ]

    def _list_distance(self, seconds: float | None) -> Iterator[str]:
        if self.peer is not None:
            far = (
                "does not answer pings" if seconds is None else f"is {seconds * 1000:.1f} ms away"
            )
            yield f"{self.peer} {far} now"


def _list_notes(rates: Rates) -> Iterator[str]:
    yield "Everything on the interface shares the limit, also logins and Keyturn's own."
    yield "Packets wait for at most 50 ms, and are dropped then; connections slow down by that."
    if rates.down:
        yield "What comes in is dropped after it has come over the line: it is no help in a flood."
    yield "The next start of the host takes the limits away."
    yield "Unless they are kept over a new connection, the host puts those of before back."
