"""Power of a server by its BMC: on, off, and off and on again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from connectors.command import QueryRunner
from connectors.machine import POWER_SECONDS, UNKNOWN_POWER, Machine, PowerAction
from runbooks import Change, Host, Leg, NoUndo, Plan, Refused, Step, make_host_field
from runbooks._bmc import get_field, get_step_host, read_machine


@dataclass(frozen=True)
class PowerState:
    """A server, the host whose commands reach its BMC, and the tags of what runs on it."""

    machine: Machine
    via: str
    tags: str


class _ControlPower(Change[PowerState]):
    """Changes the power of a server; subclasses say how."""

    host: Host = make_host_field("bmc")

    def read(self, run_query: QueryRunner) -> PowerState:
        return PowerState(
            read_machine(run_query, self.host),
            get_step_host(run_query, self.host),
            get_field(run_query, self.host, "inventory.tags"),
        )

    def make_plan(
        self, state: PowerState, action: PowerAction, title: str, undo: NoUndo, after: str
    ) -> Plan:
        machine = state.machine
        if machine.power == UNKNOWN_POWER:
            raise Refused(
                f"the BMC of {self.host} does not report whether it is on: try again in a minute, "
                "or look at the server and restart its BMC"
            )
        command = machine.control_power(action)
        if command is None:
            why = f" ({machine.error})" if machine.error else ""
            raise Refused(f"the BMC of {self.host} offers no such action: {title.lower()}{why}")
        step = Step(title, state.via, do=command, undo=undo, before=machine.power, after=after)
        return Plan(self.describe(state), [step], [*self.list_notes(state, action)])

    def describe(self, state: PowerState) -> str:
        serials = "/".join(state.machine.serials) or "unknown"
        model = state.machine.model or "server"
        return f"{self.host} ({model}, serial number {serials}) is {state.machine.power}"

    def list_notes(self, state: PowerState, action: PowerAction) -> Iterator[str]:
        if action != "on":
            tags = ", ".join(tag for tag in state.tags.split() if tag != "bmc")
            yield f"This stops everything on {self.host}: {tags or 'it has no other tags'}."
        if action == "shutdown":
            yield (
                f"If it is not off within {POWER_SECONDS[action]} s, the run fails: then request "
                "how=cut."
            )
        if action == "off":
            yield "The operating system is not asked: unwritten data is lost."
        if state.machine.boot_once and action in ("on", "cycle"):
            yield f"The next boot, and only that one, is from {state.machine.boot_once}."


class PowerOn(_ControlPower, words="bmc power on", example="nas1"):
    """Power a server on by its BMC."""

    def plan(self, state: PowerState) -> Plan:
        if state.machine.power == "on":
            return Plan(self.describe(state))
        undo = NoUndo("its operating system starts, and may change data at once")
        return self.make_plan(state, "on", f"Power {self.host} on", undo, "on")


class PowerOff(_ControlPower, words="bmc power off", example="nas1"):
    """Shut a server down and power it off by its BMC, or cut its power."""

    how: Annotated[
        Literal["shutdown", "cut"],
        Field(description="shutdown asks the operating system to end; cut ends it at once"),
    ] = "shutdown"

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host)]

    def plan(self, state: PowerState) -> Plan:
        if state.machine.power == "off":
            return Plan(self.describe(state))
        undo = NoUndo("what ran there has ended")
        if self.how == "cut":
            return self.make_plan(state, "off", f"Cut the power of {self.host}", undo, "off")
        return self.make_plan(state, "shutdown", f"Shut {self.host} down", undo, "off")


class PowerCycle(
    _ControlPower, words="bmc power cycle", also_called=("hard reset",), example="nas1"
):
    """Cut the power of a server by its BMC, and power it on again."""

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host)]

    def plan(self, state: PowerState) -> Plan:
        if state.machine.power == "off":
            raise Refused(f"{self.host} is off: request bmc power on")
        undo = NoUndo("what ran there has ended, and unwritten data is lost")
        return self.make_plan(state, "cycle", f"Power-cycle {self.host}", undo, "on, restarted")

    def plan_after(self, state: PowerState) -> Plan:
        if state.machine.power == "on":
            return Plan(f"the BMC has power-cycled {self.host}, which is on")
        return self.plan(state)
