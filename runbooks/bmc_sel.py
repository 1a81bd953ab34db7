from typing import Annotated

from pydantic import Field

from connectors.command import QueryRunner
from connectors.machine import BmcEvent
from runbooks import Check, Host, Report, Table, make_host_field
from runbooks._bmc import read_events, read_machine


class ShowBmcEvents(
    Check[tuple[BmcEvent, ...]],
    words="bmc sel",
    example="nas1",
    columns=("Time", "Severity", "Event"),
):
    """Show the newest entries of a server's system event log (SEL)."""

    host: Host = make_host_field("bmc")
    newest: Annotated[int, Field(ge=1, le=200, description="How many entries to show")] = 25

    def read(self, run_query: QueryRunner) -> tuple[BmcEvent, ...]:
        machine = read_machine(run_query, self.host)
        return read_events(run_query, self.host, machine, self.newest)

    def report(self, events: tuple[BmcEvent, ...]) -> Report:
        if not events:
            return Report(f"The event log of {self.host} is empty")
        newest = events[0]
        return Report(
            f"The newest event of {self.host} is of {newest.time} by the BMC's clock: "
            f"{newest.message}",
            table=Table(
                self.columns,
                [(event.time, event.severity, event.message) for event in events],
            ),
        )
