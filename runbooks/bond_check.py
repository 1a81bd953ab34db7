from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import bond as dialect
from connectors import switch
from connectors.bond import Bond, BondMember, LinkCounters
from connectors.command import QueryRunner
from connectors.errors import CommandError, HostError, ParseError
from connectors.switch import Lag, SwitchPort
from runbooks import (
    Address,
    Check,
    EarlierReport,
    Host,
    Refused,
    Report,
    Table,
    query_earlier_report,
)

BondName = Annotated[
    str,
    Field(
        pattern=dialect.NAME,
        description="The bond, such as bond0, without a VLAN",
        json_schema_extra={"lists": "bonds"},
    ),
]


@dataclass(frozen=True)
class SwitchSide:
    """The switch's side of the cables; lag: None where it has none, trouble: or why not known."""

    switch: str
    name: str
    lag: Lag | None
    error: str = ""


@dataclass(frozen=True)
class CableEnd:
    """A switch's port that a member's cable ends in; port: None where the switch has none such."""

    switch: str
    name: str
    port: SwitchPort | None
    error: str = ""


@dataclass(frozen=True)
class PacketSizes:
    """What became of packets to the peer that are as large as the bond's MTU.

    whole: whether they came back; reached: whether any do. pieces: whether they came back in
    pieces, as from a peer with a smaller MTU; None where other packets in pieces hide that.
    """

    is_whole: bool
    is_reached: bool
    is_fragmented: bool | None = False


@dataclass(frozen=True)
class BondState:
    """A bond as seen from the host and from its switch.

    hidden: why LACP's details could not be read. sizes: of packets to the peer; None without one.
    sockets: where the cables of round-robin end, as far as the inventory says so.
    earlier: what this check saw last time.
    """

    bond: Bond
    links: Mapping[str, LinkCounters]
    drivers: Mapping[str, str]
    hidden_reason: str = ""
    sizes: PacketSizes | None = None
    switch_side: SwitchSide | None = None
    cable_ends: Sequence[CableEnd] = ()
    earlier: EarlierReport | None = None

    @property
    def mtu(self) -> int:
        return self.links[self.bond.name].mtu


class BondCheck(Check[BondState], words="bond check", example="nas1 bond0"):
    """See whether every member of a network bond carries its share, from both ends."""

    host: Host
    bond: BondName = "bond0"
    peer: Address | None = Field(
        default=None,
        description="An address beyond the bond, to see whether packets as large as its MTU pass",
    )

    def read(self, run_query: QueryRunner) -> BondState:
        there = run_query(self.host, dialect.query_bonds())
        if self.bond not in there:
            raise Refused(f"{self.host} has no {self.bond}: it has {', '.join(there) or 'none'}")
        bond, hidden = self._read_bond(run_query)
        links = run_query(self.host, dialect.query_links())
        if self.bond not in links:
            raise ParseError(f"{self.host} has {self.bond}, and ip does not list it")
        cards = [member.name for member in bond.members]
        return BondState(
            bond,
            links,
            run_query(self.host, dialect.query_drivers(cards)) if cards else {},
            hidden,
            self._read_sizes(run_query, links[self.bond].mtu),
            self._read_switch_side(run_query),
            self._read_cable_ends(run_query) if bond.mode == dialect.ROUND_ROBIN else (),
            run_query(self.host, query_earlier_report(self, "bond")),
        )

    def report(self, state: BondState) -> Report:
        bond = state.bond
        troubles = [
            *_list_bond_findings(bond),
            *(each for member in bond.members for each in _list_member_findings(bond, member)),
            *_list_size_findings(state, self.peer),
            *_list_switch_findings(bond, state.switch_side),
            *_list_port_findings(bond, state.cable_ends),
            *_list_new_failures(state),
        ]
        up = sum(member.is_up for member in bond.members)
        return Report(
            f"{self.bond} on {self.host} ({bond.mode}) has {up} of {len(bond.members)} members up"
            + (f", and {len(troubles)} to look at" if troubles else ""),
            healthy=not troubles,
            findings=[*troubles, *_list_notes(state)],
            table=Table(
                _COLUMNS,
                [_format_row(state, member) for member in bond.members],
            ),
        )

    def _read_bond(self, run_query: QueryRunner) -> tuple[Bond, str]:
        """Read as root only where the kernel hides something from others."""
        bond = run_query(self.host, dialect.query_bond(self.bond))
        if not bond.is_lacp_hidden:
            return bond, ""
        try:
            return run_query(self.host, dialect.query_bond_as_root(self.bond)), ""
        except CommandError as trouble:
            return bond, str(trouble)

    def _read_sizes(self, run_query: QueryRunner, mtu: int) -> PacketSizes | None:
        if self.peer is None:
            return None
        whole, pieces = self._read_ping(run_query, self.peer, mtu)
        if whole and pieces < dialect.PING_COUNT:
            return PacketSizes(is_whole=True, is_reached=True)
        reached, others = self._read_ping(run_query, self.peer, dialect.SMALL_PACKET_BYTES)
        # A small answer comes in one piece: what is put together meanwhile is from others.
        in_pieces = True if others < dialect.PING_COUNT else None
        return PacketSizes(whole, whole or reached, in_pieces if whole else False)

    def _read_ping(self, run_query: QueryRunner, peer: Address, mtu: int) -> tuple[bool, int]:
        """Return whether packets of this size come back, and how many came in pieces meanwhile."""
        before = run_query(self.host, dialect.query_reassembled_count(peer.version))
        answered = run_query(self.host, dialect.query_packet_fits(peer, mtu))
        return answered, run_query(
            self.host, dialect.query_reassembled_count(peer.version)
        ) - before

    def _read_cable_ends(self, run_query: QueryRunner) -> list[CableEnd]:
        cables = run_query(self.host, dialect.query_switch_ports(self.bond))
        seen = {
            name: _read_ports(run_query, name)
            for name in dict.fromkeys(name for name, _ in cables)
        }
        return [_find_cable_end(name, port, seen[name]) for name, port in cables]

    def _read_switch_side(self, run_query: QueryRunner) -> SwitchSide | None:
        place = run_query(self.host, dialect.query_switch_lag(self.bond))
        if place is None:
            return None
        try:
            lag = switch.find_lag(place[1], run_query(place[0], switch.query_lags()))
        except HostError as trouble:
            return SwitchSide(*place, None, str(trouble))
        return SwitchSide(*place, lag)


_COLUMNS = ("Member", "Link", "Mbit/s", "Duplex", "Failures", "LACP", "Errors", "Driver")


def _read_ports(run_query: QueryRunner, name: str) -> Sequence[SwitchPort] | str:
    """Return the ports of a switch, or why they could not be seen."""
    try:
        return run_query(name, switch.query_ports())
    except HostError as trouble:
        return str(trouble)


def _find_cable_end(name: str, port: str, seen: Sequence[SwitchPort] | str) -> CableEnd:
    if isinstance(seen, str):
        return CableEnd(name, port, None, seen)
    found = (each for each in seen if each.name.lower() == port.lower())
    return CableEnd(name, port, next(found, None))


def _list_bond_findings(bond: Bond) -> Iterator[str]:
    if not bond.members:
        yield f"{bond.name} has no members: nothing goes through it"
        return
    if not bond.is_up:
        yield f"{bond.name} is down: none of its members carries anything"
    if len(bond.members) == 1:
        yield f"{bond.name} has one member only, {bond.members[0].name}: nothing is spare"
    if not bond.is_monitored:
        yield (
            f"nobody watches the links of {bond.name} (miimon is 0): a dead cable goes unnoticed "
            "and its share of the packets is lost; set miimon=100"
        )
    speeds = {member.speed for member in bond.members if member.is_up}
    if len(speeds) > 1:
        yield f"the members run at different speeds: {_format_speeds(bond)}"
    yield from _list_lacp_findings(bond)


def _list_lacp_findings(bond: Bond) -> Iterator[str]:
    up = sum(member.is_up for member in bond.members)
    apart = {member.aggregator for member in bond.members if member.is_up}
    if bond.is_lacp_hidden and len(apart) > 1:
        found = ", ".join(f"{each.name} {each.aggregator}" for each in bond.members if each.is_up)
        yield (
            f"the members are in different aggregators ({found}), and only one of these carries "
            "traffic: are their ports in one LACP group of one switch?"
        )
    if bond.is_without_partner:
        yield (
            f"nobody answers {bond.name} in LACP: the switch's ports are in no LACP group, so one "
            "member at most carries traffic, although every link is up"
        )
    elif bond.port_count is not None and bond.port_count < up:
        yield f"{bond.port_count} of the {up} members that are up are in LACP's active aggregation"


def _list_member_findings(bond: Bond, member: BondMember) -> Iterator[str]:
    if not member.is_up:
        words = {"down": "has no link: look at its cable and port, and whether it is set up"}
        yield f"{member.name} {words.get(member.link_state, f'is {member.link_state}')}"
        return
    if member.duplex != "full":
        yield f"{member.name} runs in {member.duplex} duplex: one of its ends does not negotiate"
    if bond.aggregator is None or bond.is_without_partner:
        return
    if member.aggregator != bond.aggregator:
        yield (
            f"{member.name} is in aggregator {member.aggregator} and the active one is "
            f"{bond.aggregator}: it carries nothing. Is its cable in another switch or group?"
        )
    elif member.partner not in {None, bond.partner}:
        yield f"{member.name} leads to {member.partner} and the others to {bond.partner}"
    elif member.is_churned or member.refusing_end:
        who = member.refusing_end or "one of its ends"
        yield f"{member.name} is kept out of the aggregation by {who}"


def _list_size_findings(state: BondState, peer: object) -> Iterator[str]:
    other = {
        member.name: state.links[member.name].mtu
        for member in state.bond.members
        if member.name in state.links and state.links[member.name].mtu != state.mtu
    }
    if other:
        found = ", ".join(f"{name} {mtu}" for name, mtu in other.items())
        yield f"{state.bond.name} has an MTU of {state.mtu} and not all its members: {found}"
    sizes = state.sizes
    if sizes is None:
        return
    if not sizes.is_reached:
        yield f"{peer} does not answer at all, so nothing is known of the MTU up to it"
    elif not sizes.is_whole:
        yield (
            f"packets of {state.mtu} bytes do not come back from {peer}, small ones do: something "
            "on the way has a smaller MTU (a switch's port, or the peer)"
        )
    elif sizes.is_fragmented:
        yield (
            f"packets of {state.mtu} bytes reach {peer}, and its answers come back in pieces: the "
            f"MTU of {peer}, or of a router on the way back, is smaller"
        )


def _list_switch_findings(bond: Bond, far: SwitchSide | None) -> Iterator[str]:
    if far is None:
        return
    if far.error:
        yield f"the other end, {far.name} on {far.switch}, could not be seen: {far.error}"
    elif far.lag is None:
        yield f"{far.switch} has no {far.name}, where the inventory says that {bond.name} ends"
    else:
        yield from (f"{far.switch}: {finding}" for finding in far.lag.findings)
        yield from _list_mismatch_findings(bond, far.switch, far.lag)


def _list_mismatch_findings(bond: Bond, name: str, lag: Lag) -> Iterator[str]:
    up = sum(member.is_up for member in bond.members)
    if lag.members is not None and len(lag.bundled_members) != up:
        yield (
            f"{len(lag.bundled_members)} ports are bundled on {name}, and {up} members are up here"
        )
    lacp_there, lacp_here = lag.protocol == "LACP", bond.mode == dialect.LACP
    if lag.members is not None and lacp_there != lacp_here:
        there = "speaks" if lacp_there else "does not speak"
        yield f"{name} {there} LACP on {lag.name}, and the mode here is {bond.mode}"


def _list_port_findings(bond: Bond, sockets: Sequence[CableEnd]) -> Iterator[str]:
    """Judge the ports of round-robin: each in a VLAN of its own, as its other end has to be."""
    if not sockets:
        return
    for trouble in dict.fromkeys(each.error for each in sockets if each.error):
        yield f"the ports that the cables end in could not be seen: {trouble}"
    if len(sockets) != len(bond.members):
        yield f"the inventory names {len(sockets)} ports, and the bond has {len(bond.members)}"
    for each in sockets:
        yield from _list_cable_end_findings(each)
    by_vlan: dict[tuple[str, str], list[str]] = {}
    for each in sockets:
        if each.port is not None and each.port.vlan:
            by_vlan.setdefault((each.switch, each.port.vlan), []).append(each.name)
    yield from (
        f"{name}: {' and '.join(ports)} share VLAN {vlan}, so the switch finds the bond's one "
        "address at each in turn, and sends what comes back by one only: give each port a VLAN of "
        "its own"
        for (name, vlan), ports in by_vlan.items()
        if len(ports) > 1
    )


def _list_cable_end_findings(socket: CableEnd) -> Iterator[str]:
    port = socket.port
    if port is None:
        if not socket.error:
            yield f"{socket.switch} has no port {socket.name}, which the inventory names"
        return
    if port.state != "up":
        yield f"{socket.switch}: {socket.name} is {port.state}"
    if not port.vlan:
        yield f"{socket.switch} does not tell the VLAN of {socket.name}"


def _list_new_failures(state: BondState) -> Iterator[str]:
    earlier = state.earlier
    for member, count in _count_new_failures(state).items():
        if count and earlier:
            yield (
                f"{member} lost its link {_format_times(count)} since "
                f"{earlier.time:%Y-%m-%d %H:%M} UTC, "
                "when this was last asked: look at its cable, transceiver and port"
            )


def _count_new_failures(state: BondState) -> Mapping[str, int]:
    """Return how often each member lost its link since last time; none of those new since."""
    table = state.earlier.report.table if state.earlier else None
    if table is None or tuple(table.columns) != _COLUMNS:
        return {}
    at = _COLUMNS.index("Failures")
    before = {row[0]: int(row[at]) for row in table.rows if row[at].isdecimal()}
    # A member that joined anew, or after a start of the host, counts from zero.
    return {
        each.name: each.failure_count
        - (before[each.name] if each.failure_count >= before[each.name] else 0)
        for each in state.bond.members
        if each.name in before
    }


def _list_notes(state: BondState) -> Iterator[str]:
    """Say what explains something, and what nothing has to be done about now."""
    bond = state.bond
    if state.sizes and state.sizes.is_fragmented is None:
        yield (
            "whether the peer's answers come back in pieces is not known: this host receives "
            "other packets in pieces at the same time"
        )
    far = state.switch_side
    if far and far.lag and far.lag.members is None:
        yield (
            f"{far.switch} does not tell which ports are in {far.lag.name}: they were not checked"
        )
    if bond.is_lacp_hidden:
        yield (
            "the kernel tells LACP's partners and aggregators to root alone, so whether the "
            f"switch takes part is not known: {state.hidden_reason}"
        )
    if bond.mode == dialect.ROUND_ROBIN and not state.cable_ends:
        yield (
            "round-robin gives one connection the speed of all members and mixes up its packets; "
            "each member's port wants a VLAN of its own through the switch, and no LACP: with "
            f"`{bond.name}.ports` in the inventory that is looked at"
        )
    if bond.mode == dialect.ACTIVE_BACKUP and bond.primary_member not in {"", bond.active_member}:
        yield (
            f"{bond.active_member or 'nobody'} is active although {bond.primary_member} is "
            "the primary"
        )
    failed = [
        f"{each.name} {_format_times(each.failure_count)}"
        for each in bond.members
        if each.failure_count
    ]
    if failed:
        since = _count_new_failures(state)
        calm = ", and none since this was last asked" if since and not any(since.values()) else ""
        yield (
            f"links were lost since they joined the bond: {', '.join(failed)}{calm}; whether they "
            "still are, `bond watch` tells"
        )


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _format_speeds(bond: Bond) -> str:
    return ", ".join(
        f"{each.name} {each.speed or 'unknown'}" for each in bond.members if each.is_up
    )


def _format_row(state: BondState, member: BondMember) -> Sequence[str]:
    link = state.links.get(member.name)
    partner = member.partner or "not told"
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
