from typing import Annotated

from pydantic import Field

from connectors import switch
from connectors.command import Ask
from connectors.switch import Lag
from runbooks import Check, Host, Refused, Report, Table, tagged

LagName = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z][A-Za-z-]{0,15} ?)?[0-9]{1,4}$",
        description="One link aggregation, such as port-channel1 or Po1; all if left out",
    ),
]


class SwitchLag(Check[tuple[Lag, ...]], words="switch lag", example="sw1 port-channel1"):
    """See whether every port of a switch's link aggregation is bundled."""

    host: Host = tagged("switch")
    name: LagName | None = None

    def read(self, ask: Ask) -> tuple[Lag, ...]:
        lags = ask(self.host, switch.lags())
        if self.name is None:
            return lags
        lag = switch.named(self.name, lags)
        if lag is None:
            there = ", ".join(each.name for each in lags) or "none"
            raise Refused(f"{self.host} has no {self.name}: it has {there}")
        return (lag,)

    def report(self, lags: tuple[Lag, ...]) -> Report:
        if not lags:
            return Report(f"{self.host} has no link aggregation in use")
        findings = [finding for lag in lags for finding in lag.findings]
        whole = sum(not lag.findings for lag in lags)
        return Report(
            f"{self.host} has {whole} of {len(lags)} link aggregations whole",
            healthy=not findings,
            findings=findings,
            table=Table(
                ("Aggregation", "State", "Protocol", "Members"), [_row(lag) for lag in lags]
            ),
        )


def _row(lag: Lag) -> tuple[str, ...]:
    if lag.members is None:
        members = "not told by this switch"
    else:
        members = ", ".join(f"{member.port} {member.state}" for member in lag.members)
    return lag.name, "up" if lag.up else "down", lag.protocol or "not told", members
