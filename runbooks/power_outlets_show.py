from collections.abc import Mapping

from connectors import pdu
from connectors.command import QueryRunner
from connectors.pdu import Outlet
from runbooks import Check, Host, Report, Table, make_host_field

State = tuple[tuple[Outlet, ...], Mapping[str, tuple[str, ...]]]


class ShowOutlets(
    Check[State],
    words="power outlets show",
    example="pdu1",
    verifies_tag=True,
    columns=("Outlet", "State", "Name", "Behind it"),
):
    """List the outlets of a power strip: which are on, and what is behind them."""

    host: Host = make_host_field("pdu")

    def read(self, run_query: QueryRunner) -> State:
        return run_query(self.host, pdu.query_outlets()), run_query(self.host, pdu.query_behind())

    def report(self, state: State) -> Report:
        outlets, behind = state
        known = {outlet.number for outlet in outlets}
        count = sum(outlet.state == "on" for outlet in outlets)
        findings = [
            f"power.outlets of {self.host} names outlet {number}, which it does not have."
            for number in behind
            if number not in known
        ]
        rows = [
            (
                outlet.number,
                outlet.state,
                outlet.name,
                ", ".join(behind[outlet.number]) or "nothing"
                if outlet.number in behind
                else "not in the inventory",
            )
            for outlet in outlets
        ]
        return Report.from_findings(
            f"{self.host} has {count} of {len(outlets)} outlets on",
            findings,
            table=Table(self.columns, rows),
        )
