"""Queries that show that a host answers now."""

from typing import Any, get_args

from connectors import msa
from connectors.command import DeviceCommand, Query, Shell, SnmpWalk
from connectors.inventory import Host, Platform

_PLATFORMS = tuple(each for each in get_args(Platform) if each not in {"linux", "snmp", "hp_msa"})
_QUERY_VERSION = Query(
    DeviceCommand(("show version",) * len(_PLATFORMS), platforms=_PLATFORMS),
    lambda answer: bool(answer.strip()),
)
# sysDescr of SNMPv2-MIB (RFC 3418).
_QUERY_DESCRIPTION = Query(SnmpWalk(("1.3.6.1.2.1.1.1",)), lambda answer: bool(answer.strip()))
# Over a connection of its own: one that was opened earlier outlives the host for a while.
_QUERY_LOGIN = Query(Shell(("true",), deadline=10, new_connection=True), lambda _answer: True)


def build_contact_query(host: Host) -> Query[Any]:
    """Return a query that any host of this platform answers."""
    if host.msa is not None:
        return msa.query("system")
    if host.snmp is not None:
        return _QUERY_DESCRIPTION
    return _QUERY_LOGIN if host.platform == "linux" else _QUERY_VERSION
