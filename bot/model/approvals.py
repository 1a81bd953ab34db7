"""Requirements: the approvals that a run needs before it may start. Pure.

A group is written "area:edge" (the owners of the area edge) or "role:security".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

# Tuples, because requirements are compared and hashed.


@dataclass(frozen=True)
class ApprovalDemand:
    """A number of approvals by different people from certain groups."""

    required_approvals: int
    group_sets: tuple[tuple[str, ...], ...]
    """For each set, one of the approvals must come from one of its groups."""

    def accepts_any_of(self, groups: Collection[str]) -> bool:
        """Return whether a person in these groups can give one of the approvals."""
        return any(group in groups for group_set in self.group_sets for group in group_set)

    def count_missing(self, groups_by_person: Mapping[str, Collection[str]]) -> int:
        """Return the number of missing approvals. groups_by_person: of those who approved."""
        accepted = [
            person for person, groups in groups_by_person.items() if self.accepts_any_of(groups)
        ]
        return max(
            self.required_approvals - len(accepted),
            len(self.group_sets) - self._count_filled_sets(groups_by_person),
            0,
        )

    def _count_filled_sets(self, groups_by_person: Mapping[str, Collection[str]]) -> int:
        """Return the largest number of group sets that different people can fill."""
        set_by_person: dict[str, int] = {}

        def assign(index: int, tried: set[str]) -> bool:
            for person, groups in groups_by_person.items():
                if person in tried or not any(group in groups for group in self.group_sets[index]):
                    continue
                tried.add(person)
                if person not in set_by_person or assign(set_by_person[person], tried):
                    set_by_person[person] = index
                    return True
            return False

        return sum(assign(index, set()) for index in range(len(self.group_sets)))

    def add_groups(self, groups: Sequence[str]) -> "ApprovalDemand":
        """Return the demand with these groups added to every set."""
        return replace(
            self,
            group_sets=tuple(_merge_groups(group_set, groups) for group_set in self.group_sets),
        )


@dataclass(frozen=True)
class ApprovalRequirements:
    """What the approvals of a run must fulfil."""

    demands: tuple[ApprovalDemand, ...] = ()
    """All of them must be met."""
    requires_second_factor: bool = False
    """Whether approvers must use a second factor."""
    requires_signature: bool = False
    """Whether each approval must be a signature over the plan."""
    requires_signed_request: bool = False
    """Whether the requester must sign the plan too, before it is approved."""
    requires_reason: bool = False
    """Whether the requester and approvers must give a reason."""
    requires_ticket: bool = False
    """Whether the request must name an approved change ticket."""
    required_witnesses: int = 0
    """How many witnesses must have cosigned the log before anything is sent."""
    remind_after: int = 0
    """Microseconds until approvers are reminded; 0 for the default."""
    escalate_to: tuple[str, ...] = ()
    """Groups whose approvals count too after twice that time."""

    @property
    def required_approvals(self) -> int:
        """The minimum number of approvers."""
        return max((demand.required_approvals for demand in self.demands), default=0)

    @property
    def approver_groups(self) -> tuple[str, ...]:
        """All groups whose approvals can count, without duplicates."""
        return _merge_groups(
            (),
            [
                group
                for demand in self.demands
                for group_set in demand.group_sets
                for group in group_set
            ],
        )

    def accepts_any_of(self, groups: Collection[str]) -> bool:
        return any(demand.accepts_any_of(groups) for demand in self.demands)

    def count_missing(self, groups_by_person: Mapping[str, Collection[str]]) -> int:
        """Return the minimum number of missing approvals; 0 if every demand is met."""
        return max((demand.count_missing(groups_by_person) for demand in self.demands), default=0)

    def merge_with(self, other: "ApprovalRequirements") -> "ApprovalRequirements":
        """Return requirements that fulfil both: the stricter of each."""
        delays = [each.remind_after for each in (self, other) if each.remind_after]
        return ApprovalRequirements(
            demands=tuple(dict.fromkeys((*self.demands, *other.demands))),
            requires_second_factor=self.requires_second_factor or other.requires_second_factor,
            requires_signature=self.requires_signature or other.requires_signature,
            requires_signed_request=self.requires_signed_request or other.requires_signed_request,
            requires_reason=self.requires_reason or other.requires_reason,
            requires_ticket=self.requires_ticket or other.requires_ticket,
            required_witnesses=max(self.required_witnesses, other.required_witnesses),
            remind_after=min(delays, default=0),
            escalate_to=_merge_groups(self.escalate_to, other.escalate_to),
        )

    def escalate_requirements(self) -> "ApprovalRequirements":
        """Return the requirements with the escalation groups as approvers."""
        demands = (demand.add_groups(self.escalate_to) for demand in self.demands)
        return replace(self, demands=tuple(dict.fromkeys(demands)))


def _merge_groups(groups: Sequence[str], added: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*groups, *added)))
