"""The guard of the last leg: whether a change may take a leg of a service away now. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bot.policy.tree_analysis import TreeAnalysis


@dataclass(frozen=True)
class TreeState:
    """The events of a tree as they are now. An event that is known nowhere here stands."""

    failed: frozenset[str] = frozenset()
    """Events that have happened, by the condition of their check."""
    unknown: frozenset[str] = frozenset()
    """Events of which it is not known whether they have happened. They count as down, but a change
    that takes their leg counts as taking it down."""
    claimed: frozenset[str] = frozenset()
    """Events that other runs in flight may bring about."""

    @property
    def down(self) -> frozenset[str]:
        return self.failed | self.unknown | self.claimed


@dataclass(frozen=True)
class GuardDecision:
    """What a change does to one service.

    margin: how many more events take the service away, before the change and while it runs; None:
    nothing can.
    """

    tree: str
    taken: Sequence[str]
    """The events that the change newly brings about."""
    margin_before: int | None
    margin_after: int | None
    cut_set: tuple[str, ...] = ()
    """Why it is refused: events that are all down or taken, and take the service away together."""

    @property
    def is_refused(self) -> bool:
        return bool(self.cut_set)


def decide(analysis: TreeAnalysis, state: TreeState, takes: Collection[str]) -> GuardDecision:
    """Decide whether a change that may bring these events about keeps the service standing.

    It is refused if all events of some minimal cut set would be down and the change newly brings
    one of them about, also where the service is down already: a leg that still stands may be all
    that is left of it. A change that takes down only what is down already is not refused: a guard
    must never hinder the repair. Nor is that of a single point of failure, which could never be
    changed then: its margin of 0 asks for more approvals instead.
    """
    newly = [name for name in takes if name not in state.failed]
    after = state.down | set(newly)
    singles = set(analysis.single_points)
    # A single point is in no other minimal cut set than its own.
    cut_set = analysis.find_cut_set(after - singles, one_of=set(newly) - singles)
    return GuardDecision(
        tree=analysis.tree.name,
        taken=newly,
        margin_before=analysis.get_margin(state.down),
        margin_after=analysis.get_margin(after),
        cut_set=cut_set or (),
    )
