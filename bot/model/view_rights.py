"""What one person may view, as the policy's rules on the action `view` decide it. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


def name_former_host(area: str) -> str:
    """Return the name by which rules see hosts that have left the inventory. No host has it.

    area: of the run on such a host; "" where that is gone too.
    """
    return f"former host of {area}" if area else "former host"


@dataclass(frozen=True, eq=False)
class ViewRights:
    """The rules on viewing, put to one person."""

    person: str
    """The person's id in the policy."""
    host_groups: Sequence[Sequence[str]]
    """The hosts of the inventory in groups: the rules answer alike for all hosts of a group."""
    areas: Sequence[str]
    """Every area of the policy."""
    runbooks: frozenset[str] | None
    """The runbooks that rules name; None where no rule on viewing looks at the runbook."""
    compares_runbooks_only: bool
    """Whether all runbooks that no rule names are alike."""
    kinds: Sequence[str]
    """The kinds of runbooks that rules tell apart; one empty name where they do not."""
    decide: Callable[[str, str, str], bool]
    """Decide about a host, a runbook and a kind."""
    _decisions: dict[tuple[str, str, str], bool] = field(
        default_factory=dict[tuple[str, str, str], bool]
    )

    def can_view(self, *, host: str, runbook: str, kind: str) -> bool:
        """Say whether the rules let the person view runs of this runbook on this host."""
        named = self.runbooks is not None and not (
            self.compares_runbooks_only and runbook not in self.runbooks
        )
        question = host, runbook if named else "", kind if kind in self.kinds else ""
        if question not in self._decisions:
            self._decisions[question] = self.decide(*question)
        return self._decisions[question]

    def list_viewable(self, runbook: str, kind: str) -> "ViewableScope":
        """Return where the person may view runs of this runbook."""
        fits = [group for group in self.host_groups if self._can_view(group[0], runbook, kind)]
        gone = [
            area
            for area in ("", *self.areas)
            if self._can_view(name_former_host(area), runbook, kind)
        ]
        return ViewableScope(frozenset(host for group in fits for host in group), frozenset(gone))

    @property
    def all_viewable(self) -> "ViewableScope":
        """Return what may be viewed of a runbook by a person whom no rule keeps from it."""
        hosts = frozenset(host for group in self.host_groups for host in group)
        return ViewableScope(hosts, frozenset(("", *self.areas)))

    def _can_view(self, host: str, runbook: str, kind: str) -> bool:
        return self.can_view(host=host, runbook=runbook, kind=kind)


@dataclass(frozen=True)
class ViewableScope:
    """Where runs of one runbook may be viewed."""

    hosts: frozenset[str]
    """Hosts of the inventory."""
    former_areas: frozenset[str]
    """Areas of runs on hosts that have left the inventory; "" for areas that are gone too."""


def can_view_all(
    viewable: Mapping[tuple[str, str], ViewableScope], view_rights: ViewRights
) -> bool:
    """Say whether all of these leave nothing out."""
    return all(one == view_rights.all_viewable for one in viewable.values())


def create_own_runs_only(person: str) -> ViewRights:
    """Return the sight of a person whom no rule lets view anything."""
    return ViewRights(
        person,
        host_groups=(),
        areas=(),
        runbooks=None,
        compares_runbooks_only=True,
        kinds=("",),
        decide=_deny_view,
    )


def _deny_view(_host: str, _runbook: str, _kind: str) -> bool:
    return False
