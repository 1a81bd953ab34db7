"""Values that a host lists, as choices in a form."""

from collections.abc import Callable, Iterable, Mapping

from connectors import block_tree, bond, haproxy, haproxy_limits, shaping, switch, systemd, zfs
from connectors.command import QueryRunner
from runbooks._abusers import read_marked

# Receives the query runner, the host, and the values of the fields that the list depends on.
Lister = Callable[[QueryRunner, str, Mapping[str, str]], Iterable[str]]
# Lists that change within a minute.
QUICK = frozenset({"abusers"})


def _list_abusers(run_query: QueryRunner, host: str, where: Mapping[str, str]) -> Iterable[str]:
    table, mark = where["table"], where["mark"]
    limits = haproxy_limits.read_limits(run_query, host)
    return [entry.key for entry in read_marked(run_query, host, table, mark, limits)]


def _list_disks(run_query: QueryRunner, host: str, _where: Mapping[str, str]) -> Iterable[str]:
    nodes = run_query(host, block_tree.query_tree()).nodes.values()
    return (node.name for node in nodes if node.type in {"disk", "mpath"})


# By the name in a field's `lists`.
LISTS: Mapping[str, Lister] = {
    "abusers": _list_abusers,
    "bonds": lambda run_query, host, _: run_query(host, bond.query_bonds()),
    "bond members": lambda run_query, host, where: (
        member.name for member in run_query(host, bond.query_bond(where["bond"])).members
    ),
    "disks": _list_disks,
    "interfaces": lambda run_query, host, _: run_query(host, shaping.query_interfaces()),
    "pools": lambda run_query, host, _: (
        space.pool for space in run_query(host, zfs.query_spaces())
    ),
    "services": lambda run_query, host, _: run_query(host, systemd.query_services()),
    "switch ports": lambda run_query, host, _: (
        port.name for port in run_query(host, switch.query_ports())
    ),
    "tables": lambda run_query, host, _: (
        head.name for head in run_query(host, haproxy.query_tables())
    ),
}
