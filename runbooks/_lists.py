"""What a host lists of itself, for those who choose one of it in a form."""

from collections.abc import Callable, Iterable, Mapping

from connectors import block_tree, bond, haproxy, haproxy_limits, shaping, systemd, zfs
from connectors.command import Ask
from runbooks._plan import Refused

# Of a host, where it looks, by field: such as the table that is chosen.
Lister = Callable[[Ask, str, Mapping[str, str]], Iterable[str]]
# What may be otherwise by the next minute.
QUICK = frozenset({"abusers"})


def _abusers(ask: Ask, host: str, where: Mapping[str, str]) -> Iterable[str]:
    table, mark = where["table"], where["mark"]
    least = haproxy_limits.known(ask, host).mark(table, mark)
    try:
        return [entry.key for entry in haproxy.reaching(ask, host, table, mark, least)]
    except haproxy.NotKept as missing:
        raise Refused(str(missing)) from None


def _disks(ask: Ask, host: str, _where: Mapping[str, str]) -> Iterable[str]:
    nodes = ask(host, block_tree.tree()).nodes.values()
    return (node.name for node in nodes if node.type in {"disk", "mpath"})


# By the word that a field says what it names with.
LISTS: Mapping[str, Lister] = {
    "abusers": _abusers,
    "bonds": lambda ask, host, _: ask(host, bond.bonds()),
    "disks": _disks,
    "interfaces": lambda ask, host, _: ask(host, shaping.cards()),
    "pools": lambda ask, host, _: (space.pool for space in ask(host, zfs.spaces())),
    "services": lambda ask, host, _: ask(host, systemd.services()),
    "tables": lambda ask, host, _: (head.name for head in ask(host, haproxy.tables())),
}
