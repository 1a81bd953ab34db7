from connectors.command import QueryRunner
from runbooks import Change, Host, Plan, make_host_field
from runbooks._power import OutletNumber, OutletState, plan_outlet, read_outlet


class TurnOutletOn(
    Change[OutletState],
    words="power outlet on",
    example="pdu1 3",
    undo="turns it off again",
    sets="power of outlet {outlet}",
):
    """Turn an outlet of a power strip on."""

    host: Host = make_host_field("pdu")
    outlet: OutletNumber

    def read(self, run_query: QueryRunner) -> OutletState:
        return read_outlet(run_query, self.host, self.outlet)

    def plan(self, state: OutletState) -> Plan:
        return plan_outlet(state, self.host, "on", undo="off")
