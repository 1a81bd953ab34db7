from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from connectors import switch, switch_port, switch_tables
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.switch_tables import LearnedAddress
from runbooks import Check, Host, Report, Table, make_host_field

_MAX_ROWS = 200


class SwitchAddresses(
    Check[Sequence[LearnedAddress]],
    words="switch addresses",
    example="sw1 address=52:54:00:00:02:01",
    columns=("Address", "VLAN", "Port", "Kind"),
):
    """List the MAC addresses that a switch has learned, and their ports."""

    host: Host = make_host_field("switch")
    address: Annotated[
        str,
        Field(
            pattern=r"^([0-9A-Fa-f]{1,4}[.:-]?){0,8}$",
            description="All or the beginning of one, with or without dots, colons or dashes",
        ),
    ] = ""
    port: Annotated[
        str, Field(pattern=rf"^$|^[0-9]{{1,3}}$|{switch_port.NAME}", description="Only this port")
    ] = ""

    def read(self, run_query: QueryRunner) -> Sequence[LearnedAddress]:
        return run_query(self.host, switch_tables.query_addresses())

    def report(self, addresses: Sequence[LearnedAddress]) -> Report:
        found = [each for each in addresses if self._is_wanted(each)]
        more = len(found) - _MAX_ROWS
        return Report(
            f"{self.host} knows {format_count(len(found), 'MAC address', 'MAC addresses')}"
            + (f" of {len(addresses)} that match" if len(found) < len(addresses) else ""),
            findings=[f"{more} more are not shown: give an address or a port"] if more > 0 else [],
            table=Table(
                self.columns,
                [(each.address, each.vlan, each.port, each.kind) for each in found[:_MAX_ROWS]],
            ),
        )

    def _is_wanted(self, learned: LearnedAddress) -> bool:
        is_port = not self.port or switch.is_same_port(self.port, learned.port)
        return is_port and _strip(learned.address).startswith(_strip(self.address))


def _strip(address: str) -> str:
    return "".join(each for each in address.lower() if each.isalnum())
