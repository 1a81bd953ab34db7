from connectors import switch
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.switch import Vlan
from runbooks import Check, Host, Report, Table, make_host_field

# Default VLANs of token ring and FDDI on every Cisco switch.
_RESERVED = range(1002, 1006)
_MOST_NAMED = 12


class SwitchVlans(
    Check[tuple[Vlan, ...]],
    words="switch vlan",
    example="sw1",
    columns=("VLAN", "Name", "State", "Access ports"),
):
    """List the VLANs of a switch, and their ports."""

    host: Host = make_host_field("switch")

    def read(self, run_query: QueryRunner) -> tuple[Vlan, ...]:
        return run_query(self.host, switch.query_vlans())

    def report(self, vlans: tuple[Vlan, ...]) -> Report:
        used = [vlan for vlan in vlans if vlan.number not in _RESERVED]
        return Report.from_findings(
            f"{self.host} has {format_count(len(used), 'VLAN')}",
            [
                *(() if vlans else ("the device lists no VLAN: check the rights of its login",)),
                *(
                    f"VLAN {vlan.number} ({vlan.name}) is {vlan.state}: its ports carry no traffic"
                    for vlan in used
                    if vlan.state != "active"
                ),
            ],
            table=Table(
                self.columns,
                [(str(vlan.number), vlan.name, vlan.state, _format_ports(vlan)) for vlan in used],
            ),
        )


def _format_ports(vlan: Vlan) -> str:
    if vlan.ports is None:
        return "not shown"
    named = ", ".join(vlan.ports[:_MOST_NAMED])
    more = len(vlan.ports) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named or "none"
