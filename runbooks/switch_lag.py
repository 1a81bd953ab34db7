from typing import Annotated

from pydantic import Field

from connectors import switch
from connectors.command import QueryRunner
from connectors.switch import Lag
from runbooks import Check, Host, Refused, Report, Table, make_host_field

LagName = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z][A-Za-z-]{0,15} ?)?[0-9]{1,4}$",
        description="One link aggregation, such as port-channel1 or Po1; all if left empty",
    ),
]


class SwitchLag(
    Check[tuple[Lag, ...]],
    words="switch lag",
    example="sw1 port-channel1",
    columns=("Aggregation", "State", "Protocol", "Members"),
):
    """Check whether every port of a switch's link aggregations is bundled."""

    host: Host = make_host_field("switch")
    name: LagName | None = None

    def read(self, run_query: QueryRunner) -> tuple[Lag, ...]:
        lags = run_query(self.host, switch.query_lags())
        if self.name is None:
            return lags
        lag = switch.find_lag(self.name, lags)
        if lag is None:
            there = ", ".join(each.name for each in lags) or "none"
            raise Refused(f"{self.host} has no {self.name}: it has {there}")
        return (lag,)

    def report(self, lags: tuple[Lag, ...]) -> Report:
        if not lags:
            return Report(f"{self.host} has no link aggregation in use")
        unknown = [lag.name for lag in lags if lag.members is None and lag.is_up]
        note = (
            f"this switch does not show the members of {', '.join(unknown)}: they were not checked"
        )
        return Report.from_findings(
            self._format_summary(lags),
            (finding for lag in lags for finding in lag.findings),
            notes=[note] if unknown else (),
            table=Table(self.columns, [_format_row(lag) for lag in lags]),
        )

    def _format_summary(self, lags: tuple[Lag, ...]) -> str:
        """Return a summary that counts healthy aggregations only where the members are known."""
        known = [lag for lag in lags if lag.members is not None]
        healthy = sum(not lag.findings for lag in known)
        if known:
            more = f", {len(lags) - len(known)} with unknown members" * (len(known) < len(lags))
            return f"{self.host} has {healthy} of {len(known)} link aggregations healthy{more}"
        up = sum(lag.is_up for lag in lags)
        return f"{self.host} has {up} of {len(lags)} link aggregations up, with unknown members"


def _format_row(lag: Lag) -> tuple[str, ...]:
    if lag.members is None:
        members = "unknown"
    else:
        members = ", ".join(f"{member.port} {member.state}" for member in lag.members)
    return lag.name, "up" if lag.is_up else "down", lag.protocol or "unknown", members
