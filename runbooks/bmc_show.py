from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors.command import QueryRunner
from connectors.machine import UNKNOWN_POWER, Machine, Sensor
from runbooks import Check, Host, Report, Table, make_host_field
from runbooks._bmc import read_machine, read_sensors


@dataclass(frozen=True)
class BmcState:
    """A server and its sensors."""

    machine: Machine
    sensors: tuple[Sensor, ...]
    errors: Sequence[str] = ()
    """What could not be read, as sentences."""


class ShowBmc(
    Check[BmcState],
    words="bmc show",
    also_called=("temperature", "fan", "sensors", "ipmi"),
    example="nas1",
    columns=("What", "Value", "Health"),
):
    """Show a server's power, health and sensors, as its BMC reports them."""

    host: Host = make_host_field("bmc")

    def read(self, run_query: QueryRunner) -> BmcState:
        machine = read_machine(run_query, self.host)
        return BmcState(machine, *read_sensors(run_query, self.host, machine))

    def report(self, state: BmcState) -> Report:
        machine = state.machine
        rows = [
            ("Server", machine.model or "unknown", ""),
            ("Serial number", ", ".join(machine.serials) or "unknown", ""),
            ("Power", machine.power, ""),
            ("Health", machine.health or "unknown", ""),
            ("Next boot only", machine.boot_once or "as usual", ""),
            *((one.name, one.reading, one.health) for one in state.sensors),
        ]
        return Report.from_findings(
            f"{self._describe_power(machine)}, health {machine.health or 'unknown'}",
            self._list_findings(state),
            table=Table(self.columns, rows),
        )

    def _describe_power(self, machine: Machine) -> str:
        if machine.power == UNKNOWN_POWER:
            return f"the power of {self.host} is unknown"
        return f"{self.host} is {machine.power}"

    def _list_findings(self, state: BmcState) -> Iterator[str]:
        if state.machine.power == UNKNOWN_POWER:
            yield f"the BMC does not report whether {self.host} is on"
        if state.machine.health not in ("ok", ""):
            yield f"the BMC reports the health of {self.host} as {state.machine.health}"
        if not state.machine.health and not any(sensor.health for sensor in state.sensors):
            yield (
                "the BMC reports no health, neither of the server nor of a sensor: compare with "
                "its own pages, and update its firmware"
            )
        for sensor in state.sensors:
            if sensor.health not in ("ok", ""):
                reading = f" ({sensor.reading})" if sensor.reading else ""
                yield f"{sensor.name} is {sensor.health}{reading}"
        yield from filter(None, (state.machine.error, *state.errors))
