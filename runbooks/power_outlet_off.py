from runbooks import Plan
from runbooks._power import ChangeOfOutlet, OutletState, plan_outlet


class TurnOutletOff(
    ChangeOfOutlet,
    words="power outlet off",
    example="pdu1 3",
    undo="turns it on again",
    sets="power of outlet {outlet}",
):
    """Turn an outlet of a power strip off."""

    def plan(self, state: OutletState) -> Plan:
        return plan_outlet(state, self.host, "off", undo="on")
