"""What a person may view, by the policy's rules on the action `view`. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


def name_former_host(area: str) -> str:
    """Return the name that stands for removed hosts of an area in rules. No host has this name.

    area: "" if the area was removed too.
    """
    return f"former host of {area}" if area else "former host"


@dataclass(frozen=True, eq=False)
class ViewRights:
    """The rules on viewing, evaluated for one person."""

    person: str
    """The person's id in the policy."""
    host_groups: Sequence[Sequence[str]]
    """The hosts of the inventory in groups for which the rules decide equally."""
    areas: Sequence[str]
    """Every area of the policy."""
    runbooks: frozenset[str] | None
    """The runbooks that rules name; None if no rule on viewing depends on the runbook."""
    compares_runbooks_only: bool
    """Whether the rules decide equally for all runbooks that they do not name."""
    kinds: Sequence[str]
    """The kinds of runbooks that rules distinguish; one empty name if none."""
    decide: Callable[[str, str, str], bool]
    """Decide about a host, a runbook and a kind."""
    _decisions: dict[tuple[str, str, str], bool] = field(
        default_factory=dict[tuple[str, str, str], bool]
    )

    def can_view(self, *, host: str, runbook: str, kind: str) -> bool:
        """Return whether the person may view runs of this runbook on this host."""
        is_named = self.runbooks is not None and not (
            self.compares_runbooks_only and runbook not in self.runbooks
        )
        key = host, runbook if is_named else "", kind if kind in self.kinds else ""
        if key not in self._decisions:
            self._decisions[key] = self.decide(*key)
        return self._decisions[key]

    def list_viewable(self, runbook: str, kind: str) -> "ViewableScope":
        """Return where the person may view runs of this runbook."""
        groups = [group for group in self.host_groups if self._can_view(group[0], runbook, kind)]
        former_areas = [
            area
            for area in ("", *self.areas)
            if self._can_view(name_former_host(area), runbook, kind)
        ]
        return ViewableScope(
            frozenset(host for group in groups for host in group), frozenset(former_areas)
        )

    @property
    def all_viewable(self) -> "ViewableScope":
        """The scope of a person who may view all runs of a runbook."""
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
    """Areas of runs on removed hosts; "" for removed areas."""


def can_view_all(
    viewable: Mapping[tuple[str, str], ViewableScope], view_rights: ViewRights
) -> bool:
    """Return whether every scope includes everything."""
    return all(one == view_rights.all_viewable for one in viewable.values())


def create_own_runs_only(person: str) -> ViewRights:
    """Return the rights of a person who may view only their own runs."""
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
