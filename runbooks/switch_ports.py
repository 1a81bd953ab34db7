from connectors import switch
from connectors.command import Ask
from connectors.switch import Port
from runbooks import Check, Host, Report, Table, tagged

# A port in one of these was put there by a person, or simply has nothing plugged in.
_QUIET = frozenset({"up", "down", "disabled", "monitoring"})


class SwitchPorts(Check[tuple[Port, ...]], words="switch ports", example="sw1"):
    """See which ports of a switch or router are up, and which one something has stopped."""

    host: Host = tagged("switch")

    def read(self, ask: Ask) -> tuple[Port, ...]:
        return ask(self.host, switch.ports())

    def report(self, ports: tuple[Port, ...]) -> Report:
        stopped = [port for port in ports if port.state not in _QUIET]
        findings = [
            *(f"{_title(port)} is {port.state}: the switch itself stopped it" for port in stopped),
            *(
                f"{_title(port)} runs in half duplex: one of its ends does not negotiate"
                for port in ports
                if port.half_duplex
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


def _title(port: Port) -> str:
    return f"{port.name} ({port.note})" if port.note else port.name
