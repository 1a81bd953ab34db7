from connectors import switch
from connectors.command import QueryRunner
from connectors.switch import SwitchPort
from runbooks import Check, Host, Report, Table, make_host_field

# A port in one of these was put there by a person, or simply has nothing plugged in.
_QUIET = frozenset({"up", "down", "disabled", "monitoring"})


class SwitchPorts(Check[tuple[SwitchPort, ...]], words="switch ports", example="sw1"):
    """See which ports of a switch or router are up, and which one something has stopped."""

    host: Host = make_host_field("switch")

    def read(self, run_query: QueryRunner) -> tuple[SwitchPort, ...]:
        return run_query(self.host, switch.query_ports())

    def report(self, ports: tuple[SwitchPort, ...]) -> Report:
        stopped = [port for port in ports if port.state not in _QUIET]
        findings = [
            *(
                f"{_format_port(port)} is {port.state}: the switch itself stopped it"
                for port in stopped
            ),
            *(
                f"{_format_port(port)} runs in half duplex: one of its ends does not negotiate"
                for port in ports
                if port.is_half_duplex
            ),
        ]
        up = sum(port.state == "up" for port in ports)
        return Report(
            f"{self.host} has {up} of {len(ports)} ports up"
            + (f", and {len(findings)} to look at" if findings else ""),
            healthy=not findings,
            findings=findings,
            table=Table(
                ("Port", "State", "VLAN", "Speed", "Duplex", "Note"),
                [
                    (port.name, port.state, port.vlan, port.speed, port.duplex, port.note)
                    for port in ports
                ],
            ),
        )


def _format_port(port: SwitchPort) -> str:
    return f"{port.name} ({port.note})" if port.note else port.name
