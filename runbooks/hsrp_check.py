from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from connectors import gateway
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.device_output import LACKS_FEATURE
from connectors.errors import CommandError, HostError
from connectors.gateway import Gateway
from runbooks import Check, Host, Refused, Report, Table, make_host_field
from runbooks._parts import list_host_errors, read_hosts

# The groups of each router, by router.
Pair = Mapping[str, tuple[Gateway, ...]]
# With why a router of the pair could not be read.
PairReading = Mapping[str, tuple[Gateway, ...] | HostError]

# If different routers lead the outside group and the inside group.
_CROSSED = (
    "traffic leaves through one router and returns through the other. HSRP is not for WANs: use "
    "routing on the outside, or let the groups track the same object so that they move together"
)

_MISSING = (
    "the router lists neither standby nor VRRP groups: if they are gone, restore its "
    "configuration; a router that has none needs no `hsrp check`"
)


class HsrpCheck(
    Check[PairReading],
    words="hsrp check",
    also_called=("failover",),
    example="r1 r2",
    verifies_tag=True,
    columns=("Router", "Interface", "Group", "Address", "State", "Priority", "Tracks"),
):
    """Check the redundancy of routers with HSRP or VRRP."""

    host: Host = make_host_field("router")
    other: Host | None = Field(
        default=None,
        title="Other router",
        description="The second router of the pair, to check each group from both sides",
        json_schema_extra={"choices": "hosts", "tag": "router"},
    )

    def read(self, run_query: QueryRunner) -> PairReading:
        if self.other == self.host:
            raise Refused(f"{self.host} is given twice: enter two different routers, or one")
        routers = [self.host, self.other] if self.other else [self.host]
        return read_hosts(routers, lambda router: _read_groups(run_query, router))

    def report(self, reading: PairReading) -> Report:
        pair = {
            router: groups
            for router, groups in reading.items()
            if not isinstance(groups, HostError)
        }
        errors = [*list_host_errors(reading)]
        if not any(pair.values()):
            return Report.from_findings(
                f"No HSRP or VRRP group on {' and '.join(pair)}", [_MISSING, *errors]
            )
        findings = [
            *errors,
            *(
                finding
                for router in pair
                for finding in _list_router_findings(router, pair[router])
            ),
            *(
                _list_pair_findings(pair)
                if len(pair) > 1
                else _list_split_findings(*next(iter(pair.items())))
            ),
        ]
        count = len({each.group_key for groups in pair.values() for each in groups})
        return Report.from_findings(
            f"{format_count(count, 'group')} on {' and '.join(pair)}: "
            + (f"{len(findings)} to fix" if findings else "all healthy"),
            findings,
            table=Table(
                self.columns,
                [_format_row(router, each) for router, groups in pair.items() for each in groups],
            ),
        )


def _read_groups(run_query: QueryRunner, router: str) -> tuple[Gateway, ...]:
    """Read HSRP groups; if there are none, VRRP groups, which not every Cisco supports."""
    groups = run_query(router, gateway.query_gateways())
    if groups:
        return groups
    try:
        return run_query(router, gateway.query_vrrp_groups())
    except CommandError as error:
        if LACKS_FEATURE in str(error):
            return ()
        raise


def _list_router_findings(router: str, groups: Sequence[Gateway]) -> Iterator[str]:
    """Return findings of one router's groups."""
    for each in groups:
        if not each.is_working:
            yield f"{router}: {each} is in state {each.state} and does not participate"
        if each.is_active and each.standby_router == "unknown":
            yield (f"{router}: {each} has no standby: if this router fails, the address fails too")
        if each.tracked_objects == ():
            yield (
                f"{router}: {each} tracks nothing: a router without its uplink stays active and "
                "drops the traffic. Track the uplink, or better a route"
            )
        yield from (
            f"{router}: {each} tracks {track.name}, "
            + ("which is down" if track.is_known else "which this router does not have")
            for track in each.tracked_objects or ()
            if not track.is_up
        )
        if each.is_preempting is False:
            yield (
                f"{router}: {each} does not preempt: it does not take over when the other "
                "router's priority decreases"
            )


def _list_split_findings(router: str, groups: Sequence[Gateway]) -> Iterator[str]:
    """Return findings of one router that is active in some groups and not in others."""
    led = [str(each) for each in groups if each.is_active]
    followed = [str(each) for each in groups if each.is_working and not each.is_active]
    if led and followed:
        yield (
            f"{router} is active for {', '.join(led)} and not for {', '.join(followed)}: unless "
            f"that is intended, {_CROSSED}"
        )


def _list_pair_findings(pair: Pair) -> Iterator[str]:
    """Return findings of each group from both sides."""
    by_group: dict[tuple[str, int, str], dict[str, Gateway]] = {}
    for router, groups in pair.items():
        for each in groups:
            by_group.setdefault(each.group_key, {})[router] = each
    leaders: dict[str, list[str]] = {}
    for sides in by_group.values():
        leading = [router for router, each in sides.items() if each.is_active]
        each = next(iter(sides.values()))
        yield from _list_group_findings(pair, each, list(sides), leading)
        if len(leading) == 1:
            leaders.setdefault(leading[0], []).append(str(sides[leading[0]]))
    if len(leaders) > 1:
        shares = "; ".join(
            f"{router} is active for {', '.join(led)}" for router, led in leaders.items()
        )
        yield f"{shares}: unless that is intended, {_CROSSED}"


def _list_group_findings(
    pair: Pair, each: Gateway, sides: list[str], leading: list[str]
) -> Iterator[str]:
    if len(sides) < len(pair):
        (absent,) = pair.keys() - set(sides)
        yield f"{absent} does not participate in {each}: {sides[0]} has no standby"
    elif len(leading) > 1:
        yield (
            f"{' and '.join(leading)} are both {each.state} for {each}: split brain. They do not "
            "receive each other's packets on that link, and both answer for the address"
        )
    elif not leading:
        yield f"no router is active for {each}: the address does not answer"


def _format_row(router: str, each: Gateway) -> Sequence[str]:
    tracks = (
        "unknown"
        if each.tracked_objects is None
        else ", ".join(track.name for track in each.tracked_objects)
    )
    return (
        router,
        each.interface,
        f"{each.protocol} {each.group}",
        each.address,
        each.state,
        str(each.priority),
        tracks or "nothing",
    )
