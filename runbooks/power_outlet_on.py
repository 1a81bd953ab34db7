from runbooks import Plan
from runbooks._power import ChangeOfOutlet, OutletState, plan_outlet


class TurnOutletOn(
    ChangeOfOutlet,
    words="power outlet on",
    example="pdu1 3",
    undo="turns it off again",
    sets="power of outlet {outlet}",
):
    """Turn an outlet of a power strip on."""

    def plan(self, state: OutletState) -> Plan:
        return plan_outlet(state, self.host, "on", undo="off")
