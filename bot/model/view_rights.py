"""What one person may view, as the policy's rules on the action `view` decide it. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


def former_area(area: str) -> str:
    """Return the name by which rules see hosts that have left the inventory. No host has it.

    area: of the run on such a host; "" where that is gone too.
    """
    return f"former host of {area}" if area else "former host"


@dataclass(frozen=True, eq=False)
class Sight:
    """The rules on viewing, put to one person."""

    person: str
    """The person's id in the policy."""
    hosts: Sequence[Sequence[str]]
    """The hosts of the inventory in groups: the rules answer alike for all hosts of a group."""
    areas: Sequence[str]
    """Every area of the policy."""
    runbooks: frozenset[str] | None
    """The runbooks that rules name; None where no rule on viewing looks at the runbook."""
    closed: bool
    """Whether all runbooks that no rule names are alike."""
    kinds: Sequence[str]
    """The kinds of runbooks that rules tell apart; one empty name where they do not."""
    judge: Callable[[str, str, str], bool]
    """Decide about a host, a runbook and a kind."""
    _known: dict[tuple[str, str, str], bool] = field(
        default_factory=dict[tuple[str, str, str], bool]
    )

    def may_view(self, *, host: str, runbook: str, kind: str) -> bool:
        """Say whether the rules let the person view runs of this runbook on this host."""
        named = self.runbooks is not None and not (self.closed and runbook not in self.runbooks)
        question = host, runbook if named else "", kind if kind in self.kinds else ""
        if question not in self._known:
            self._known[question] = self.judge(*question)
        return self._known[question]

    def viewable(self, runbook: str, kind: str) -> "Viewable":
        """Return where the person may view runs of this runbook."""
        fits = [group for group in self.hosts if self._of(group[0], runbook, kind)]
        gone = [area for area in ("", *self.areas) if self._of(former_area(area), runbook, kind)]
        return Viewable(frozenset(host for group in fits for host in group), frozenset(gone))

    @property
    def everywhere(self) -> "Viewable":
        """Return what may be viewed of a runbook by a person whom no rule keeps from it."""
        hosts = frozenset(host for group in self.hosts for host in group)
        return Viewable(hosts, frozenset(("", *self.areas)))

    def _of(self, host: str, runbook: str, kind: str) -> bool:
        return self.may_view(host=host, runbook=runbook, kind=kind)


@dataclass(frozen=True)
class Viewable:
    """Where runs of one runbook may be viewed."""

    hosts: frozenset[str]
    """Hosts of the inventory."""
    areas: frozenset[str]
    """Areas of runs on hosts that have left the inventory; "" for areas that are gone too."""


def can_view_all(viewable: Mapping[tuple[str, str], Viewable], sight: Sight) -> bool:
    """Say whether all of these leave nothing out."""
    return all(one == sight.everywhere for one in viewable.values())


def view_own_only(person: str) -> Sight:
    """Return the sight of a person whom no rule lets view anything."""
    return Sight(
        person, hosts=(), areas=(), runbooks=None, closed=True, kinds=("",), judge=_nothing
    )


def _nothing(_host: str, _runbook: str, _kind: str) -> bool:
    return False
