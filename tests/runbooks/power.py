"""An outlet of a power strip, and what the inventory has behind it."""

from connectors.pdu import Outlet
from runbooks import Leg
from runbooks.power_outlet import OutletState

LEGS = (Leg("web1", "psu1"), Leg("switch3"))


def outlet(state: str, behind: tuple[Leg, ...] | None = LEGS) -> OutletState:
    return OutletState(Outlet("3", "Outlet 3", state, "rPDU of PowerNet-MIB", "3"), behind)


def get_sent_line(value: int) -> str:
    """Return the line that is sent to set the command of outlet 3 to a value."""
    return f"1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.3 i {value}"
