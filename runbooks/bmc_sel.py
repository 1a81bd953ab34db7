from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors.command import QueryRunner
from connectors.machine import BmcEvent
from runbooks import Check, Host, Report, Table, make_host_field
from runbooks._bmc import read_events, read_machine


@dataclass(frozen=True)
class BmcLog:
    """The newest events, the newest first."""

    events: tuple[BmcEvent, ...]
    errors: Sequence[str] = ()
    """What could not be read, as sentences."""


class ShowBmcEvents(
    Check[BmcLog],
    words="bmc sel",
    also_called=("hardware errors",),
    example="nas1",
    columns=("Time", "Severity", "Event"),
):
    """Show the newest entries of a server's system event log (SEL)."""

    host: Host = make_host_field("bmc")
    newest: Annotated[int, Field(ge=1, le=200, description="How many entries to show")] = 25

    def read(self, run_query: QueryRunner) -> BmcLog:
        machine = read_machine(run_query, self.host)
        return BmcLog(*read_events(run_query, self.host, machine, self.newest))

    def report(self, log: BmcLog) -> Report:
        if not log.events:
            state = "could not be read" if log.errors else "is empty"
            return Report.from_findings(f"The event log of {self.host} {state}", log.errors)
        newest = log.events[0]
        return Report.from_findings(
            f"The newest event of {self.host} is of {newest.time} by the BMC's clock: "
            f"{newest.message}",
            log.errors,
            table=Table(
                self.columns,
                [(event.time, event.severity, event.message) for event in log.events],
            ),
        )
