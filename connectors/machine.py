"""A server as its management controller (BMC) reports it, by Redfish or IPMI. No I/O."""

from dataclasses import dataclass
from typing import Literal

from connectors.command import Command

PowerAction = Literal["on", "shutdown", "off", "cycle"]
"""`shutdown` asks the operating system to end; `off` and `cycle` cut its power."""
BootDevice = Literal["pxe", "disk", "cd", "setup"]

# Seconds for reaching the state: an operating system may take its time to end.
POWER_SECONDS = {"on": 60, "shutdown": 300, "off": 60, "cycle": 120}

UNKNOWN_POWER = "unknown"


@dataclass(frozen=True)
class Machine:
    """A server. Texts are as the BMC returns them, or empty."""

    power: str
    """on, off, UNKNOWN_POWER, or the BMC's own word, such as poweringon."""
    health: str
    """ok, or the BMC's own word, such as warning or critical."""
    model: str
    serials: tuple[str, ...]
    """Its serial numbers: a server may have one of its case and one of the product."""
    uuid: str
    boot_once: str
    """The device of the next boot only: a BootDevice or the BMC's own word; "" if none is set."""
    error: str = ""
    """What the BMC did not return, such as the actions that it offers; "" for nothing."""

    def control_power(self, action: PowerAction) -> Command | None:
        """Return the command, which waits for the power state; None if the BMC lacks it."""
        raise NotImplementedError

    def restore_boot(self) -> Command | None:
        """Return the command that sets the boot as it was read."""
        return self.set_boot_once(self.boot_once)

    def set_boot_once(self, device: str) -> Command | None:
        """Return the command; None if the BMC lacks the device. device: "" for none."""
        raise NotImplementedError


@dataclass(frozen=True)
class Sensor:
    """A fan, a temperature or a power supply."""

    name: str
    reading: str
    """With its unit; "" without one."""
    health: str
    """ok, or what is wrong; "" where the BMC does not judge it."""


@dataclass(frozen=True)
class BmcEvent:
    """An entry of the system event log (SEL)."""

    time: str
    """As the BMC writes it: its clock may be wrong."""
    severity: str
    message: str
