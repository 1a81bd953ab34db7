from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from connectors import bond as bonds
from connectors import switch
from connectors.bond import Bond, BondMember, LinkCounters
from connectors.command import QueryRunner
from connectors.errors import CommandError, HostError, ParseError
from connectors.switch import Lag, SwitchPort
from runbooks import (
    Address,
    BondName,
    Check,
    EarlierReport,
    Host,
    Refused,
    Report,
    Table,
    query_earlier_report,
)


@dataclass(frozen=True)
class SwitchSide:
    """The link aggregation on the switch."""

    switch: str
    name: str
    lag: Lag | None
    """None if the switch has no such aggregation, or if it could not be read."""
    error: str = ""
    """Why it could not be read."""


@dataclass(frozen=True)
class CableEnd:
    """The switch port where a member's cable ends."""

    switch: str
    name: str
    port: SwitchPort | None
    """None if the switch has no such port, or if it could not be read."""
    error: str = ""
    """Why it could not be read."""


@dataclass(frozen=True)
class PacketSizes:
    """The result of pings to the peer with packets as large as the route to it allows."""

    interface: str = ""
    """The interface through which packets to the peer leave; "" if there is no route."""
    mtu: int = 0
    """The size of the packets: the MTU of the route, or of the interface."""
    is_whole: bool = False
    """Whether packets of this size are answered."""
    is_reached: bool = False
    """Whether any packets are answered."""
    is_fragmented: bool | None = False
    """Whether the answers are fragmented, as by a smaller MTU; None if that is unknown because
    the host receives other fragments."""
    error: str = ""
    """Why the packets were not sent or counted."""


@dataclass(frozen=True)
class BondState:
    """A bond as the host and its switch show it."""

    bond: Bond
    links: Mapping[str, LinkCounters]
    drivers: Mapping[str, str]
    hidden_reason: str = ""
    """Why LACP's details could not be read."""
    sizes: PacketSizes | None = None
    """None without a peer."""
    switch_side: SwitchSide | None = None
    cable_ends: Sequence[CableEnd] = ()
    """Where the cables of a round-robin bond end, as far as the inventory has it."""
    earlier: EarlierReport | None = None
    """The previous report of this check."""

    @property
    def mtu(self) -> int:
        """The bond's MTU."""
        return self.links[self.bond.name].mtu


class BondCheck(
    Check[BondState],
    words="bond check",
    also_called=("lacp", "link aggregation"),
    example="nas1 bond0",
    columns=("Member", "Link", "Mbit/s", "Duplex", "Failures", "LACP", "Errors", "Driver"),
):
    """Check every member of a network bond, from the host and from the switch."""

    host: Host
    bond: BondName = "bond0"
    peer: Address | None = Field(
        default=None,
        description="An address behind the bond, to test the largest packets of its route",
    )

    def read(self, run_query: QueryRunner) -> BondState:
        there = run_query(self.host, bonds.query_bonds())
        if self.bond not in there:
            raise Refused(f"{self.host} has no {self.bond}: it has {', '.join(there) or 'none'}")
        bond, hidden = self._read_bond(run_query)
        links = run_query(self.host, bonds.query_links())
        if self.bond not in links:
            raise ParseError(f"{self.host} has {self.bond}, but ip does not list it")
        cards = [member.name for member in bond.members]
        return BondState(
            bond,
            links,
            run_query(self.host, bonds.query_drivers(cards)) if cards else {},
            hidden,
            self._read_sizes(run_query, links),
            self._read_switch_side(run_query),
            self._read_cable_ends(run_query) if bond.mode == bonds.ROUND_ROBIN else (),
            run_query(self.host, query_earlier_report(self, "bond")),
        )

    def report(self, state: BondState) -> Report:
        bond = state.bond
        findings = [
            *_list_bond_findings(bond),
            *(each for member in bond.members for each in _list_member_findings(bond, member)),
            *_list_size_findings(state, self.peer),
            *_list_switch_findings(bond, state.switch_side),
            *_list_port_findings(bond, state.cable_ends),
            *_list_new_failures(state),
            *_list_lost_members(state),
        ]
        up = sum(member.is_up for member in bond.members)
        return Report.from_findings(
            f"{self.bond} on {self.host} ({_format_settings(state)}) has {up} of "
            f"{len(bond.members)} members up" + (f", {len(findings)} to fix" if findings else ""),
            findings,
            notes=_list_notes(state),
            table=Table(
                self.columns,
                [_format_row(state, member) for member in bond.members],
            ),
        )

    def _read_bond(self, run_query: QueryRunner) -> tuple[Bond, str]:
        """Read the bond; as root only where the kernel hides details from other users."""
        bond = run_query(self.host, bonds.query_bond(self.bond))
        if not bond.is_lacp_hidden:
            return bond, ""
        try:
            return run_query(self.host, bonds.query_bond_as_root(self.bond)), ""
        except CommandError as error:
            return bond, str(error)

    def _read_sizes(
        self, run_query: QueryRunner, links: Mapping[str, LinkCounters]
    ) -> PacketSizes | None:
        if self.peer is None:
            return None
        try:
            route = run_query(self.host, bonds.query_route(self.peer))
            if route.interface not in links:
                raise ParseError(f"ip does not list {route.interface}, the interface of its route")
            mtu = route.mtu or links[route.interface].mtu
            return self._test_sizes(run_query, self.peer, PacketSizes(route.interface, mtu))
        except (CommandError, ParseError) as error:
            return PacketSizes(error=str(error))

    def _test_sizes(
        self, run_query: QueryRunner, peer: Address, sizes: PacketSizes
    ) -> PacketSizes:
        answered, fragmented = self._read_ping(run_query, peer, sizes.mtu)
        if answered and fragmented < bonds.PING_COUNT:
            return replace(sizes, is_whole=True, is_reached=True)
        reached, others = self._read_ping(run_query, peer, bonds.SMALL_PACKET_BYTES)
        # Small answers are not fragmented: packets that are reassembled meanwhile are others.
        is_fragmented = True if others < bonds.PING_COUNT else None
        return replace(
            sizes,
            is_whole=answered,
            is_reached=answered or reached,
            is_fragmented=is_fragmented if answered else False,
        )

    def _read_ping(self, run_query: QueryRunner, peer: Address, mtu: int) -> tuple[bool, int]:
        """Return whether packets of this size are answered, and how many packets of any sender
        the host reassembled meanwhile."""
        before = run_query(self.host, bonds.query_reassembled_count(peer.version))
        answered = run_query(self.host, bonds.query_packet_fits(peer, mtu))
        return answered, run_query(self.host, bonds.query_reassembled_count(peer.version)) - before

    def _read_cable_ends(self, run_query: QueryRunner) -> list[CableEnd]:
        cables = run_query(self.host, bonds.query_switch_ports(self.bond))
        ports = {
            name: _read_ports(run_query, name)
            for name in dict.fromkeys(name for name, _ in cables)
        }
        return [_find_cable_end(name, port, ports[name]) for name, port in cables]

    def _read_switch_side(self, run_query: QueryRunner) -> SwitchSide | None:
        place = run_query(self.host, bonds.query_switch_lag(self.bond))
        if place is None:
            return None
        try:
            lag = switch.find_lag(place[1], run_query(place[0], switch.query_lags()))
        except HostError as error:
            return SwitchSide(*place, None, str(error))
        return SwitchSide(*place, lag)


def _format_settings(state: BondState) -> str:
    bond = state.bond
    vlans = sorted(link.name for link in state.links.values() if link.parent == bond.name)
    settings = {
        "hash policy": bond.hash_policy,
        "LACP rate": bond.lacp_rate,
        "MTU": str(state.mtu),
        "VLANs": " ".join(vlans),
    }
    return ", ".join(
        [bond.mode, *(f"{name} {value}" for name, value in settings.items() if value)]
    )


def _read_ports(run_query: QueryRunner, name: str) -> Sequence[SwitchPort] | str:
    """Return the ports of a switch, or why they could not be read."""
    try:
        return run_query(name, switch.query_ports())
    except HostError as error:
        return str(error)


def _find_cable_end(name: str, port: str, ports: Sequence[SwitchPort] | str) -> CableEnd:
    if isinstance(ports, str):
        return CableEnd(name, port, None, ports)
    found = (each for each in ports if each.name.lower() == port.lower())
    return CableEnd(name, port, next(found, None))


def _list_bond_findings(bond: Bond) -> Iterator[str]:
    if not bond.members:
        yield f"{bond.name} has no members: it carries no traffic"
        return
    if not bond.is_up:
        yield f"{bond.name} is down: none of its members carries traffic"
    if len(bond.members) == 1:
        yield f"{bond.name} has only one member, {bond.members[0].name}: no redundancy"
    if not bond.is_monitored:
        yield (
            f"the links of {bond.name} are not monitored (miimon is 0): packets are lost on a "
            "dead cable. Set miimon=100"
        )
    speeds = {member.speed for member in bond.members if member.is_up}
    if len(speeds) > 1:
        yield f"the members have different speeds: {_format_speeds(bond)}"
    yield from _list_lacp_findings(bond)


def _list_lacp_findings(bond: Bond) -> Iterator[str]:
    up = sum(member.is_up for member in bond.members)
    apart = {member.aggregator for member in bond.members if member.is_up}
    if bond.is_lacp_hidden and len(apart) > 1:
        found = ", ".join(f"{each.name} {each.aggregator}" for each in bond.members if each.is_up)
        yield (
            f"the members are in different aggregators ({found}), and only one of these carries "
            "traffic: check that their ports are in one LACP group of one switch"
        )
    if bond.is_without_partner:
        links = "every link is up" if up == len(bond.members) else f"{up} links are up"
        yield (
            f"{bond.name} has no LACP partner: the switch's ports are in no LACP group, so at "
            f"most one member carries traffic{f', although {links}' if up > 1 else ''}"
        )
    elif bond.port_count is not None and bond.port_count < up:
        yield f"{bond.port_count} of the {up} members that are up are in LACP's active aggregation"


def _list_member_findings(bond: Bond, member: BondMember) -> Iterator[str]:
    if not member.is_up:
        texts = {"down": "has no link: check its cable, its port and its configuration"}
        yield f"{member.name} {texts.get(member.link_state, f'is {member.link_state}')}"
        return
    if member.duplex != "full":
        yield f"{member.name} runs in {member.duplex} duplex: enable autonegotiation at both ends"
    if bond.aggregator is None or bond.is_without_partner:
        return
    if member.aggregator is None or not bond.aggregator:
        yield f"{member.name} is in no active aggregator: it carries no traffic"
    elif member.aggregator != bond.aggregator:
        yield (
            f"{member.name} is in aggregator {member.aggregator}, but the active one is "
            f"{bond.aggregator}: it carries no traffic. Check whether its cable is in another "
            "switch or group"
        )
    elif member.partner not in {None, bond.partner}:
        yield f"{member.name} has the partner {member.partner}, but the others have {bond.partner}"
    elif member.is_churned or member.refusing_end:
        end = member.refusing_end or "one of its ends"
        yield f"{member.name} is kept out of the aggregation by {end}"


def _list_size_findings(state: BondState, peer: object) -> Iterator[str]:
    other = {
        member.name: state.links[member.name].mtu
        for member in state.bond.members
        if member.name in state.links and state.links[member.name].mtu != state.mtu
    }
    if other:
        found = ", ".join(f"{name} {mtu}" for name, mtu in other.items())
        yield f"{state.bond.name} has an MTU of {state.mtu}, but some members differ: {found}"
    if state.sizes is not None:
        yield from _list_peer_findings(state, state.sizes, peer)


def _list_peer_findings(state: BondState, sizes: PacketSizes, peer: object) -> Iterator[str]:
    if sizes.error:
        yield f"the MTU of the path to {peer} is unknown: {sizes.error}"
    elif sizes.interface not in bonds.list_interfaces_above(state.bond.name, state.links):
        yield (
            f"packets to {peer} leave through {sizes.interface}, not through {state.bond.name}: "
            "enter a peer behind the bond"
        )
    elif not sizes.is_reached:
        yield f"{peer} does not answer pings, so the MTU of the path is unknown"
    elif not sizes.is_whole:
        yield (
            f"{peer} answers small packets but not packets of {sizes.mtu} bytes: something on "
            "the path has a smaller MTU (a switch port, or the peer)"
        )
    elif sizes.is_fragmented:
        yield (
            f"packets of {sizes.mtu} bytes reach {peer}, but its answers are fragmented: the "
            f"MTU of {peer}, or of a router on the way back, is smaller"
        )


def _list_switch_findings(bond: Bond, far: SwitchSide | None) -> Iterator[str]:
    if far is None:
        return
    if far.error:
        yield f"the other end, {far.name} on {far.switch}, could not be read: {far.error}"
    elif far.lag is None:
        yield f"{far.switch} has no {far.name}, which the inventory sets as the end of {bond.name}"
    else:
        yield from (f"{far.switch}: {finding}" for finding in far.lag.findings)
        yield from _list_mismatch_findings(bond, far.switch, far.lag)


def _list_mismatch_findings(bond: Bond, name: str, lag: Lag) -> Iterator[str]:
    up = sum(member.is_up for member in bond.members)
    if lag.members is not None and len(lag.bundled_members) != up:
        yield (
            f"{len(lag.bundled_members)} ports are bundled on {name}, but {up} members are up here"
        )
    lacp_there, lacp_here = lag.protocol == "LACP", bond.mode == bonds.LACP
    if lag.members is not None and lacp_there != lacp_here:
        there = "uses" if lacp_there else "does not use"
        yield f"{name} {there} LACP on {lag.name}, but the mode here is {bond.mode}"


def _list_port_findings(bond: Bond, cable_ends: Sequence[CableEnd]) -> Iterator[str]:
    """Return findings of a round-robin bond's ports: each port needs a VLAN of its own."""
    if not cable_ends:
        return
    for error in dict.fromkeys(each.error for each in cable_ends if each.error):
        yield f"the switch ports of the cables could not be read: {error}"
    if len(cable_ends) != len(bond.members):
        yield (
            f"the inventory has {len(cable_ends)} ports, but the bond has "
            f"{len(bond.members)} members"
        )
    for each in cable_ends:
        yield from _list_cable_end_findings(each)
    by_vlan: dict[tuple[str, str], list[str]] = {}
    for each in cable_ends:
        if each.port is not None and each.port.vlan:
            by_vlan.setdefault((each.switch, each.port.vlan), []).append(each.name)
    yield from (
        f"{name}: {' and '.join(ports)} share VLAN {vlan}, so the switch learns the bond's "
        "address at each port in turn and returns traffic through only one: give each port a "
        "VLAN of its own"
        for (name, vlan), ports in by_vlan.items()
        if len(ports) > 1
    )


def _list_cable_end_findings(cable_end: CableEnd) -> Iterator[str]:
    port = cable_end.port
    if port is None:
        if not cable_end.error:
            yield f"{cable_end.switch} has no port {cable_end.name}, which is in the inventory"
        return
    if port.state != "up":
        yield f"{cable_end.switch}: {cable_end.name} is {port.state}"
    if not port.vlan:
        yield f"{cable_end.switch} does not show the VLAN of {cable_end.name}"


def _list_new_failures(state: BondState) -> Iterator[str]:
    earlier = state.earlier
    for member, count in _count_new_failures(state).items():
        if count and earlier:
            yield (
                f"{member} lost its link {_format_times(count)} since "
                f"the last check at {earlier.time:%Y-%m-%d %H:%M} UTC: check its cable, "
                "transceiver and port"
            )


def _list_lost_members(state: BondState) -> Iterator[str]:
    members = {each.name for each in state.bond.members}
    for name in _list_earlier_failures(state):
        if name not in members and state.earlier:
            yield (
                f"{name} is no member any more: it was one at the last check at "
                f"{state.earlier.time:%Y-%m-%d %H:%M} UTC. Check its card, its driver and the "
                "configuration of the bond"
            )


def _list_earlier_failures(state: BondState) -> Mapping[str, int]:
    """Return the members at the last check, each with how often it had lost its link."""
    table = state.earlier.report.table if state.earlier else None
    if table is None or tuple(table.columns) != BondCheck.columns:
        return {}
    at = BondCheck.columns.index("Failures")
    return {row[0]: int(row[at]) for row in table.rows if row[at].isdecimal()}


def _count_new_failures(state: BondState) -> Mapping[str, int]:
    """Return how often each member lost its link since the last check, without new members."""
    before = _list_earlier_failures(state)
    # The count of a member that joined again, or of a rebooted host, starts from zero.
    return {
        each.name: each.failure_count
        - (before[each.name] if each.failure_count >= before[each.name] else 0)
        for each in state.bond.members
        if each.name in before
    }


def _list_notes(state: BondState) -> Iterator[str]:
    """Return notes that require no action."""
    bond, sizes = state.bond, state.sizes
    if sizes and sizes.is_reached and sizes.mtu != state.mtu:
        yield (
            f"the peer was tested with packets of {sizes.mtu} bytes, the MTU of the route through "
            f"{sizes.interface}"
        )
    if sizes and sizes.is_fragmented is None:
        yield (
            "it is unknown whether the peer's answers are fragmented: this host receives other "
            "fragmented packets at the same time"
        )
    far = state.switch_side
    if far and far.lag and far.lag.members is None:
        yield (
            f"{far.switch} does not show which ports are in {far.lag.name}: they were not checked"
        )
    if bond.is_lacp_hidden:
        yield (
            "only root can read LACP's partners and aggregators, so it is unknown whether the "
            f"switch uses LACP: {state.hidden_reason}"
        )
    if bond.mode == bonds.ROUND_ROBIN and not state.cable_ends:
        yield (
            "round-robin gives one connection the speed of all members and reorders its packets; "
            "each member's port needs a VLAN of its own on the switch, without LACP: set "
            f"`{bond.name}.ports` in the inventory to check that"
        )
    if bond.mode == bonds.ACTIVE_BACKUP and bond.primary_member not in {"", bond.active_member}:
        yield (
            f"{bond.active_member or 'no member'} is active although {bond.primary_member} is "
            "the primary"
        )
    failed = [
        f"{each.name} {_format_times(each.failure_count)}"
        for each in bond.members
        if each.failure_count
    ]
    if failed:
        since = _count_new_failures(state)
        none = ", none since the last check" if since and not any(since.values()) else ""
        yield (
            f"members lost their links since they joined the bond: {', '.join(failed)}{none}; "
            "run `bond watch` to check whether they still do"
        )


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _format_speeds(bond: Bond) -> str:
    return ", ".join(
        f"{each.name} {each.speed or 'unknown'}" for each in bond.members if each.is_up
    )


def _format_row(state: BondState, member: BondMember) -> Sequence[str]:
    link = state.links.get(member.name)
    partner = member.partner or "unknown"
    lacp = "" if member.aggregator is None else f"{partner} ({member.aggregator})"
    return (
        member.name,
        member.link_state,
        str(member.speed or "unknown"),
        member.duplex,
        str(member.failure_count),
        lacp,
        "" if link is None else f"{link.error_count:,}",
        state.drivers.get(member.name, ""),
    )
