from connectors import switch
from connectors.command import QueryRunner
from connectors.switch import SwitchPort
from runbooks import Check, Host, Report, Table, make_host_field

# Normal states: set by a person, or nothing is plugged in.
_QUIET = frozenset({"up", "down", "disabled", "monitoring"})


class SwitchPorts(
    Check[tuple[SwitchPort, ...]],
    words="switch ports",
    example="sw1",
    verifies_tag=True,
    columns=("Port", "State", "VLAN", "Speed", "Duplex", "Note"),
):
    """List the ports of a switch or router, and those that the device has stopped."""

    host: Host = make_host_field("switch")

    def read(self, run_query: QueryRunner) -> tuple[SwitchPort, ...]:
        return switch.read_ports(run_query, self.host)

    def report(self, ports: tuple[SwitchPort, ...]) -> Report:
        stopped = [port for port in ports if port.state not in _QUIET]
        findings = [
            *(() if ports else (switch.NO_PORTS,)),
            *(self._format_stop(port) for port in stopped),
            *(
                f"{_format_port(port)} runs in half duplex: enable autonegotiation at both ends"
                for port in ports
                if port.is_half_duplex
            ),
        ]
        up = sum(port.state == "up" for port in ports)
        return Report.from_findings(
            f"{self.host} has {up} of {len(ports)} ports up"
            + (f", {len(findings)} to fix" if findings else ""),
            findings,
            table=Table(
                self.columns,
                [
                    (port.name, port.state, port.vlan, port.speed, port.duplex, port.note)
                    for port in ports
                ],
            ),
        )

    def _format_stop(self, port: SwitchPort) -> str:
        if not port.fault:
            return f"{_format_port(port)} is {port.state}: the switch has stopped it"
        return (
            f"{_format_port(port)} is {port.fault}: find the cause, then shut it down and enable "
            f"it, on a Cisco with `switch port enable {self.host} {port.name}`"
        )


def _format_port(port: SwitchPort) -> str:
    return f"{port.name} ({port.note})" if port.note else port.name
