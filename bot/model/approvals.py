"""Terms: what the approvals of a run must come to before it may start. Pure.

A group is written "area:edge" (the owners of the edge) or "role:security".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

# Tuples and no other sequences: terms are compared and hashed, also once they were stored.


@dataclass(frozen=True)
class Demand:
    """So many approvals by different people, and among them one of each of `each`.

    each: one or several groups for every place, any of which may fill it.
    """

    approvals: int
    each: tuple[tuple[str, ...], ...]

    def wants(self, groups: Collection[str]) -> bool:
        """Say whether somebody of these groups could help to meet it."""
        return any(group in groups for place in self.each for group in place)

    def missing(self, people: Mapping[str, Collection[str]]) -> int:
        """Return how many more it takes beside the approvals of these. people: their groups."""
        wanted = [person for person, groups in people.items() if self.wants(groups)]
        return max(self.approvals - len(wanted), len(self.each) - self._filled(people), 0)

    def _filled(self, people: Mapping[str, Collection[str]]) -> int:
        """Return for how many places there is somebody who stands in no other place."""
        standing: dict[str, int] = {}

        def seat(place: int, tried: set[str]) -> bool:
            for person, groups in people.items():
                if person in tried or not any(group in groups for group in self.each[place]):
                    continue
                tried.add(person)
                if person not in standing or seat(standing[person], tried):
                    standing[person] = place
                    return True
            return False

        return sum(seat(place, set()) for place in range(len(self.each)))

    def widened(self, groups: Sequence[str]) -> "Demand":
        """Return it with these groups accepted in every place."""
        return replace(self, each=tuple(_merged(place, groups) for place in self.each))


@dataclass(frozen=True)
class ApprovalRequirements:
    """Every demand must be met. step_up: approving takes a second factor. reason: and a reason,
    as does asking. patience: microseconds until the approvers are reminded, 0 for the usual.
    escalate: groups whose approval counts too after twice as long.
    """

    demands: tuple[Demand, ...] = ()
    step_up: bool = False
    reason: bool = False
    patience: int = 0
    escalate: tuple[str, ...] = ()

    @property
    def approvals(self) -> int:
        """How many people it takes at the least."""
        return max((demand.approvals for demand in self.demands), default=0)

    @property
    def groups(self) -> tuple[str, ...]:
        """Every group whose approval may count, each once."""
        return _merged(
            (), [group for demand in self.demands for place in demand.each for group in place]
        )

    def wants(self, groups: Collection[str]) -> bool:
        return any(demand.wants(groups) for demand in self.demands)

    def missing(self, people: Mapping[str, Collection[str]]) -> int:
        """Return how many more approvals it takes at the least; 0 once every demand is met."""
        return max((demand.missing(people) for demand in self.demands), default=0)

    def and_also(self, other: "ApprovalRequirements") -> "ApprovalRequirements":
        """Return what holds where both hold: nothing of either is weakened."""
        patiences = [terms.patience for terms in (self, other) if terms.patience]
        return ApprovalRequirements(
            demands=tuple(dict.fromkeys((*self.demands, *other.demands))),
            step_up=self.step_up or other.step_up,
            reason=self.reason or other.reason,
            patience=min(patiences, default=0),
            escalate=_merged(self.escalate, other.escalate),
        )

    def escalated(self) -> "ApprovalRequirements":
        """Return them as they are once the next group may approve as well."""
        demands = (demand.widened(self.escalate) for demand in self.demands)
        return replace(self, demands=tuple(dict.fromkeys(demands)))


def _merged(some: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*some, *more)))
