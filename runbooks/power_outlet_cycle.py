from runbooks import NoUndo, Plan, Refused, Report
from runbooks._power import ChangeOfOutlet, OutletState, plan_outlet


class CycleOutlet(ChangeOfOutlet, words="power outlet cycle", example="pdu1 3"):
    """Turn an outlet of a power strip off, and on again after the time set in the strip."""

    def plan(self, state: OutletState) -> Plan:
        if state.outlet.state != "on":
            raise Refused(
                f"{state.describe(self.host)} is {state.outlet.state}: request `power outlet on`"
            )
        undo = NoUndo("what runs behind the outlet loses its power without a shutdown")
        return plan_outlet(state, self.host, "cycle", undo=undo)

    def plan_after(self, state: OutletState) -> Plan:
        # The strip confirmed the cycle. It keeps no time of it that could be read.
        return Plan(f"the strip accepted the cycle; {self._describe(state)}")

    def report_progress(self, state: OutletState) -> Report | None:
        is_off = state.outlet.state == "off"
        return Report(self._describe(state), healthy=not is_off, running=is_off)

    def _describe(self, state: OutletState) -> str:
        return f"{state.describe(self.host)} is {state.outlet.state}"
