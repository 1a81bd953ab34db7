from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from connectors import gateway
from connectors.command import QueryRunner
from connectors.device_output import LACKS_FEATURE
from connectors.errors import CommandError
from connectors.gateway import Gateway
from runbooks import Check, Host, Refused, Report, Table, make_host_field

# What each router takes part in, by its name.
Pair = Mapping[str, tuple[Gateway, ...]]

# Where the group to the outside and the one to the inside are led by different routers.
_CROSSED = (
    "what goes out by one router comes back by the other. HSRP is not for WANs: let the "
    "outside be routed, or let the groups track the same thing so that they move together"
)


class HsrpCheck(Check[Pair], words="hsrp check", example="r1 r2"):
    """See whether routers stand in for each other as they should, with HSRP or VRRP."""

    host: Host = make_host_field("router")
    other: Host | None = Field(
        default=None,
        title="Other router",
        description="The second router of the pair: with it, each group is seen from both sides",
        json_schema_extra={"choices": "hosts", "tag": "router"},
    )

    def read(self, run_query: QueryRunner) -> Pair:
        if self.other == self.host:
            raise Refused(f"{self.host} cannot stand in for itself: name two routers, or one")
        routers = [self.host, self.other] if self.other else [self.host]
        return {router: _read_groups(run_query, router) for router in routers}

    def report(self, pair: Pair) -> Report:
        if not any(pair.values()):
            return Report(f"no group of HSRP or VRRP on {' and '.join(pair)}")
        findings = [
            *(
                finding
                for router in pair
                for finding in _list_router_findings(router, pair[router])
            ),
            *(
                _list_pair_findings(pair)
                if len(pair) > 1
                else _list_split_findings(self.host, pair[self.host])
            ),
        ]
        count = len({each.group_key for groups in pair.values() for each in groups})
        return Report(
            f"{count} group{'' if count == 1 else 's'} on {' and '.join(pair)}: "
            + (f"{len(findings)} to look at" if findings else "all as they should be"),
            healthy=not findings,
            findings=findings,
            table=Table(
                ("Router", "Interface", "Group", "Address", "State", "Priority", "Tracks"),
                [_format_row(router, each) for router, groups in pair.items() for each in groups],
            ),
        )


def _read_groups(run_query: QueryRunner, router: str) -> tuple[Gateway, ...]:
    """Ask for HSRP; where there is none, for VRRP, which not every Cisco knows."""
    groups = run_query(router, gateway.query_gateways())
    if groups:
        return groups
    try:
        return run_query(router, gateway.query_vrrp_groups())
    except CommandError as trouble:
        if LACKS_FEATURE in str(trouble):
            return ()
        raise


def _list_router_findings(router: str, groups: Sequence[Gateway]) -> Iterator[str]:
    """Judge what one router says of its own groups."""
    for each in groups:
        if not each.is_working:
            yield f"{router}: {each} is in state {each.state}: it takes no part"
        if each.is_active and each.standby_router == "unknown":
            yield (
                f"{router}: {each} has no standby: if this router goes, the address goes with it"
            )
        if each.tracked_objects == ():
            yield (
                f"{router}: {each} tracks nothing: a router whose uplink is gone goes on leading "
                "it and swallows the traffic; track the uplink, or better a route"
            )
        yield from (
            f"{router}: {each} tracks {track.name}, "
            + ("which is down" if track.is_known else "which this router does not have")
            for track in each.tracked_objects or ()
            if not track.is_up
        )
        if each.is_preempting is False:
            yield (
                f"{router}: {each} does not preempt: when the other router's priority sinks, "
                "this one does not take over"
            )


def _list_split_findings(router: str, groups: Sequence[Gateway]) -> Iterator[str]:
    """Judge one router that leads some groups and not others."""
    led = [str(each) for each in groups if each.is_active]
    followed = [str(each) for each in groups if each.is_working and not each.is_active]
    if led and followed:
        yield (
            f"{router} leads {', '.join(led)} and not {', '.join(followed)}: unless they are "
            f"shared out on purpose, {_CROSSED}"
        )


def _list_pair_findings(pair: Pair) -> Iterator[str]:
    """Judge each group from both sides."""
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
        shares = "; ".join(f"{router} leads {', '.join(led)}" for router, led in leaders.items())
        yield f"{shares}: unless they are shared out on purpose, {_CROSSED}"


def _list_group_findings(
    pair: Pair, each: Gateway, sides: list[str], leading: list[str]
) -> Iterator[str]:
    if len(sides) < len(pair):
        (absent,) = pair.keys() - set(sides)
        yield f"{absent} takes no part in {each}: nobody stands in for {sides[0]}"
    elif len(leading) > 1:
        yield (
            f"{' and '.join(leading)} both say that they are {each.state} for {each}: split "
            "brain. They do not hear each other on that link, and both answer for the address"
        )
    elif not leading:
        yield f"nobody leads {each}: the address does not answer"


def _format_row(router: str, each: Gateway) -> Sequence[str]:
    tracks = (
        "not told"
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
