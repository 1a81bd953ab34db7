from typing import Annotated, Literal

from pydantic import Field

from connectors.command import QueryRunner
from connectors.machine import Machine
from runbooks import Change, Host, NoUndo, Plan, Refused, Step, make_host_field
from runbooks._bmc import get_step_host, read_machine


class SetBootOnce(
    Change[tuple[Machine, str]],
    words="bmc boot once",
    example="nas1 pxe",
    undo="sets the next boot as it was",
):
    """Choose the device of a server's next boot, and only of that one."""

    host: Host = make_host_field("bmc")
    device: Annotated[
        Literal["pxe", "disk", "cd", "setup", "usual"],
        Field(description="pxe is the network, setup the firmware's menu, usual removes a choice"),
    ]

    def read(self, run_query: QueryRunner) -> tuple[Machine, str]:
        return read_machine(run_query, self.host), get_step_host(run_query, self.host)

    def plan(self, state: tuple[Machine, str]) -> Plan:
        machine, via = state
        wanted, now = "" if self.device == "usual" else self.device, machine.boot_once
        found = f"the next boot of {self.host} is {f'from {now}, once' if now else 'as usual'}"
        if now == wanted:
            return Plan(found)
        command, undo = machine.set_boot_once(wanted), machine.restore_boot()
        if command is None:
            raise Refused(f"the BMC of {self.host} cannot boot it from {self.device}")
        step = Step(
            f"Boot {self.host} from {self.device} once" if wanted else "Boot it as usual",
            via,
            do=command,
            undo=undo or NoUndo(f"the BMC cannot set {now} again"),
            before=now or "usual",
            after=self.device,
        )
        return Plan(found, [step], [f"{self.host} is {machine.power}: this restarts nothing."])
