"""Ansible's groups: which hosts are in them, and whose variables count. Pure."""

from collections.abc import Mapping
from typing import Any

from bot.inventory.found import NotUnderstood

# Groups that Ansible makes itself, and that say nothing of a host.
_EVERYBODY = frozenset({"all", "ungrouped"})


class Groups:
    """Every host and group of an inventory, gathered in the order of the file."""

    def __init__(self) -> None:
        self.hosts: dict[str, dict[str, Any]] = {}
        self._variables: dict[str, dict[str, Any]] = {"all": {}}
        self._parents: dict[str, set[str]] = {}
        self._in: dict[str, set[str]] = {}

    def add(self, group: str) -> None:
        self._variables.setdefault(group, {})

    def put(self, group: str, *, below: str) -> None:
        """Make a group a child of another. Raises NotUnderstood if it is its own ancestor."""
        self.add(group)
        self.add(below)
        self._parents.setdefault(group, set()).add(below)
        if group in self._above(below) | {below}:
            raise NotUnderstood(f"the group {group} is within itself")

    def give(self, group: str, variables: Mapping[str, Any]) -> None:
        self._variables.setdefault(group, {}).update(variables)

    def add_host(self, name: str, group: str, variables: Mapping[str, Any]) -> None:
        self.add(group)
        self.hosts.setdefault(name, {}).update(variables)
        self._in.setdefault(name, set()).add(group)

    def of(self, host: str) -> frozenset[str]:
        """Return the groups that a host is in, those above them as well."""
        return frozenset(self._all_of(host) - _EVERYBODY)

    def variables(self, host: str) -> Mapping[str, Any]:
        """Return what counts for a host: its own before its group's, a child's before a parent's.

        Of groups that are equally deep, the last by name wins.
        """
        merged: dict[str, Any] = {}
        order = sorted(self._all_of(host) | {"all"}, key=lambda group: (self._depth(group), group))
        for group in order:
            merged.update(self._variables[group])
        return merged | self.hosts[host]

    def _all_of(self, host: str) -> set[str]:
        groups = set(self._in[host])
        return groups.union(*(self._above(group) for group in groups))

    def _above(self, group: str) -> set[str]:
        found: set[str] = set()
        waiting = list(self._parents.get(group, ()))
        while waiting:
            parent = waiting.pop()
            if parent not in found:
                found.add(parent)
                waiting.extend(self._parents.get(parent, ()))
        return found

    def _depth(self, group: str) -> int:
        if group == "all":
            return 0
        return 1 + max((self._depth(parent) for parent in self._parents.get(group, ())), default=0)
