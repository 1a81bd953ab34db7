"""Terms: what the approvals of a run must come to before it may start. Pure.

A group is written "area:edge" (the owners of the edge) or "role:security".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

# Tuples and no other sequences: terms are compared and hashed, also once they were stored.


@dataclass(frozen=True)
class ApprovalDemand:
    """So many approvals by different people, and among them one of each of `each`.

    each: one or several groups for every place, any of which may fill it.
    """

    required_approvals: int
    group_sets: tuple[tuple[str, ...], ...]

    def accepts_any_of(self, groups: Collection[str]) -> bool:
        """Return whether a person in these groups can give one of the approvals."""
        return any(group in groups for place in self.group_sets for group in place)

    def count_missing(self, groups_by_person: Mapping[str, Collection[str]]) -> int:
        """Return how many more it takes beside the approvals of these. people: their groups."""
        wanted = [
            person for person, groups in groups_by_person.items() if self.accepts_any_of(groups)
        ]
        return max(
            self.required_approvals - len(wanted),
            len(self.group_sets) - self._count_filled_places(groups_by_person),
            0,
        )

    def _count_filled_places(self, groups_by_person: Mapping[str, Collection[str]]) -> int:
        """Return the largest number of group sets that different people can fill."""
        standing: dict[str, int] = {}

        def seat(place: int, tried: set[str]) -> bool:
            for person, groups in groups_by_person.items():
                if person in tried or not any(group in groups for group in self.group_sets[place]):
                    continue
                tried.add(person)
                if person not in standing or seat(standing[person], tried):
                    standing[person] = place
                    return True
            return False

        return sum(seat(place, set()) for place in range(len(self.group_sets)))

    def add_groups(self, groups: Sequence[str]) -> "ApprovalDemand":
        """Return it with these groups accepted in every place."""
        return replace(
            self, group_sets=tuple(_merge_groups(place, groups) for place in self.group_sets)
        )


@dataclass(frozen=True)
class ApprovalRequirements:
    """Every demand must be met. step_up: approving takes a second factor. reason: and a reason,
    as does asking. patience: microseconds until the approvers are reminded, 0 for the usual.
    escalate: groups whose approval counts too after twice as long.
    """

    demands: tuple[ApprovalDemand, ...] = ()
    requires_second_factor: bool = False
    requires_reason: bool = False
    remind_after: int = 0
    escalate_to: tuple[str, ...] = ()

    @property
    def required_approvals(self) -> int:
        """How many people it takes at the least."""
        return max((demand.required_approvals for demand in self.demands), default=0)

    @property
    def approver_groups(self) -> tuple[str, ...]:
        """Every group whose approval may count, each once."""
        return _merge_groups(
            (),
            [group for demand in self.demands for place in demand.group_sets for group in place],
        )

    def accepts_any_of(self, groups: Collection[str]) -> bool:
        return any(demand.accepts_any_of(groups) for demand in self.demands)

    def count_missing(self, groups_by_person: Mapping[str, Collection[str]]) -> int:
        """Return how many more approvals it takes at the least; 0 once every demand is met."""
        return max((demand.count_missing(groups_by_person) for demand in self.demands), default=0)

    def merge_with(self, other: "ApprovalRequirements") -> "ApprovalRequirements":
        """Return what holds where both hold: nothing of either is weakened."""
        patiences = [terms.remind_after for terms in (self, other) if terms.remind_after]
        return ApprovalRequirements(
            demands=tuple(dict.fromkeys((*self.demands, *other.demands))),
            requires_second_factor=self.requires_second_factor or other.requires_second_factor,
            requires_reason=self.requires_reason or other.requires_reason,
            remind_after=min(patiences, default=0),
            escalate_to=_merge_groups(self.escalate_to, other.escalate_to),
        )

    def escalate_requirements(self) -> "ApprovalRequirements":
        """Return them as they are once the next group may approve as well."""
        demands = (demand.add_groups(self.escalate_to) for demand in self.demands)
        return replace(self, demands=tuple(dict.fromkeys(demands)))


def _merge_groups(groups: Sequence[str], added: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*groups, *added)))
