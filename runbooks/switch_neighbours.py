from collections.abc import Sequence

from connectors import switch_tables
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.switch_tables import Neighbour
from runbooks import Check, Host, Report, Table, make_host_field


class SwitchNeighbours(
    Check[Sequence[Neighbour]],
    words="switch neighbours",
    example="sw1",
    columns=("Port", "Neighbour", "Its port"),
):
    """List what is at the other end of a switch's cables, by LLDP."""

    host: Host = make_host_field("switch")

    def read(self, run_query: QueryRunner) -> Sequence[Neighbour]:
        return run_query(self.host, switch_tables.query_lldp_neighbours())

    def report(self, neighbours: Sequence[Neighbour]) -> Report:
        return Report(
            f"{self.host} has {format_count(len(neighbours), 'neighbour')} with LLDP",
            table=Table(
                self.columns,
                [(each.port, each.name or "unknown", each.far_port) for each in neighbours],
            ),
        )
