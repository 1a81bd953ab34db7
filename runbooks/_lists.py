"""What a host lists of itself, for those who choose one of it in a form."""

from collections.abc import Callable, Iterable, Mapping

from connectors import block_tree, bond, haproxy, shaping, zfs
from connectors.command import Ask

Lister = Callable[[Ask, str], Iterable[str]]


def _disks(ask: Ask, host: str) -> Iterable[str]:
    nodes = ask(host, block_tree.tree()).nodes.values()
    return (node.name for node in nodes if node.type in {"disk", "mpath"})


# By the word that a field says what it names with.
LISTS: Mapping[str, Lister] = {
    "bonds": lambda ask, host: ask(host, bond.bonds()),
    "disks": _disks,
    "interfaces": lambda ask, host: ask(host, shaping.cards()),
    "pools": lambda ask, host: (space.pool for space in ask(host, zfs.spaces())),
    "tables": lambda ask, host: (head.name for head in ask(host, haproxy.tables())),
}
