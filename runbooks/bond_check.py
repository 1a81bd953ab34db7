from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import bond as dialect
from connectors import switch
from connectors.bond import Bond, Link, Member
from connectors.command import Ask
from connectors.switch import Lag, Port
from connectors.trouble import CommandFailed, HostTrouble, NotUnderstood
from runbooks import Address, Check, Earlier, Host, Refused, Report, Table, last_time

BondName = Annotated[
    str,
    Field(
        pattern=dialect.NAME,
        description="The bond, such as bond0, without a VLAN",
        json_schema_extra={"lists": "bonds"},
    ),
]


@dataclass(frozen=True)
class FarEnd:
    """The switch's side of the cables; lag: None where it has none, trouble: or why not known."""

    switch: str
    name: str
    lag: Lag | None
    trouble: str = ""


@dataclass(frozen=True)
class Socket:
    """A switch's port that a member's cable ends in; port: None where the switch has none such."""

    switch: str
    name: str
    port: Port | None
    trouble: str = ""


@dataclass(frozen=True)
class Sizes:
    """What became of packets to the peer that are as large as the bond's MTU.

    whole: whether they came back; reached: whether any do. pieces: whether they came back in
    pieces, as from a peer with a smaller MTU; None where other packets in pieces hide that.
    """

    whole: bool
    reached: bool
    pieces: bool | None = False


@dataclass(frozen=True)
class State:
    """A bond as seen from the host and from its switch.

    hidden: why LACP's details could not be read. sizes: of packets to the peer; None without one.
    sockets: where the cables of round-robin end, as far as the inventory says so.
    earlier: what this check saw last time.
    """

    bond: Bond
    links: Mapping[str, Link]
    drivers: Mapping[str, str]
    hidden: str = ""
    sizes: Sizes | None = None
    far_end: FarEnd | None = None
    sockets: Sequence[Socket] = ()
    earlier: Earlier | None = None

    @property
    def mtu(self) -> int:
        return self.links[self.bond.name].mtu


class BondCheck(Check[State], words="bond check", example="nas1 bond0"):
    """See whether every member of a network bond carries its share, from both ends."""

    host: Host
    bond: BondName = "bond0"
    peer: Address | None = Field(
        default=None,
        description="An address beyond the bond, to see whether packets as large as its MTU pass",
    )

    def read(self, ask: Ask) -> State:
        there = ask(self.host, dialect.bonds())
        if self.bond not in there:
            raise Refused(f"{self.host} has no {self.bond}: it has {', '.join(there) or 'none'}")
        bond, hidden = self._bond(ask)
        links = ask(self.host, dialect.links())
        if self.bond not in links:
            raise NotUnderstood(f"{self.host} has {self.bond}, and ip does not list it")
        cards = [member.name for member in bond.members]
        return State(
            bond,
            links,
            ask(self.host, dialect.drivers(cards)) if cards else {},
            hidden,
            self._sizes(ask, links[self.bond].mtu),
            self._far_end(ask),
            self._sockets(ask) if bond.mode == dialect.ROUND_ROBIN else (),
            ask(self.host, last_time(self, "bond")),
        )

    def report(self, state: State) -> Report:
        bond = state.bond
        troubles = [
            *_of_the_bond(bond),
            *(each for member in bond.members for each in _of_a_member(bond, member)),
            *_of_sizes(state, self.peer),
            *_of_the_far_end(bond, state.far_end),
            *_of_sockets(bond, state.sockets),
            *_since_last_time(state),
        ]
        up = sum(member.up for member in bond.members)
        return Report(
            f"{self.bond} on {self.host} ({bond.mode}) has {up} of {len(bond.members)} members up"
            + (f", and {len(troubles)} to look at" if troubles else ""),
            healthy=not troubles,
            findings=[*troubles, *_notes(state)],
            table=Table(
                _COLUMNS,
                [_row(state, member) for member in bond.members],
            ),
        )

    def _bond(self, ask: Ask) -> tuple[Bond, str]:
        """Read as root only where the kernel hides something from others."""
        bond = ask(self.host, dialect.bond(self.bond))
        if not bond.hides_lacp:
            return bond, ""
        try:
            return ask(self.host, dialect.bond_as_root(self.bond)), ""
        except CommandFailed as trouble:
            return bond, str(trouble)

    def _sizes(self, ask: Ask, mtu: int) -> Sizes | None:
        if self.peer is None:
            return None
        whole, pieces = self._ping(ask, self.peer, mtu)
        if whole and pieces < dialect.PINGS:
            return Sizes(whole=True, reached=True)
        reached, others = self._ping(ask, self.peer, dialect.SMALL)
        # A small answer comes in one piece: what is put together meanwhile is from others.
        in_pieces = True if others < dialect.PINGS else None
        return Sizes(whole, whole or reached, in_pieces if whole else False)

    def _ping(self, ask: Ask, peer: Address, mtu: int) -> tuple[bool, int]:
        """Return whether packets of this size come back, and how many came in pieces meanwhile."""
        before = ask(self.host, dialect.reassembled(peer.version))
        answered = ask(self.host, dialect.fits(peer, mtu))
        return answered, ask(self.host, dialect.reassembled(peer.version)) - before

    def _sockets(self, ask: Ask) -> list[Socket]:
        cables = ask(self.host, dialect.cables(self.bond))
        seen = {name: _ports(ask, name) for name in dict.fromkeys(name for name, _ in cables)}
        return [_socket(name, port, seen[name]) for name, port in cables]

    def _far_end(self, ask: Ask) -> FarEnd | None:
        place = ask(self.host, dialect.far_end(self.bond))
        if place is None:
            return None
        try:
            lag = switch.named(place[1], ask(place[0], switch.lags()))
        except HostTrouble as trouble:
            return FarEnd(*place, None, str(trouble))
        return FarEnd(*place, lag)


_COLUMNS = ("Member", "Link", "Mbit/s", "Duplex", "Failures", "LACP", "Errors", "Driver")


def _ports(ask: Ask, name: str) -> Sequence[Port] | str:
    """Return the ports of a switch, or why they could not be seen."""
    try:
        return ask(name, switch.ports())
    except HostTrouble as trouble:
        return str(trouble)


def _socket(name: str, port: str, seen: Sequence[Port] | str) -> Socket:
    if isinstance(seen, str):
        return Socket(name, port, None, seen)
    found = (each for each in seen if each.name.lower() == port.lower())
    return Socket(name, port, next(found, None))


def _of_the_bond(bond: Bond) -> Iterator[str]:
    if not bond.members:
        yield f"{bond.name} has no members: nothing goes through it"
        return
    if not bond.up:
        yield f"{bond.name} is down: none of its members carries anything"
    if len(bond.members) == 1:
        yield f"{bond.name} has one member only, {bond.members[0].name}: nothing is spare"
    if not bond.watched:
        yield (
            f"nobody watches the links of {bond.name} (miimon is 0): a dead cable goes unnoticed "
            "and its share of the packets is lost; set miimon=100"
        )
    speeds = {member.speed for member in bond.members if member.up}
    if len(speeds) > 1:
        yield f"the members run at different speeds: {_per_member(bond)}"
    yield from _of_lacp(bond)


def _of_lacp(bond: Bond) -> Iterator[str]:
    up = sum(member.up for member in bond.members)
    apart = {member.aggregator for member in bond.members if member.up}
    if bond.hides_lacp and len(apart) > 1:
        found = ", ".join(f"{each.name} {each.aggregator}" for each in bond.members if each.up)
        yield (
            f"the members are in different aggregators ({found}), and only one of these carries "
            "traffic: are their ports in one LACP group of one switch?"
        )
    if bond.alone:
        yield (
            f"nobody answers {bond.name} in LACP: the switch's ports are in no LACP group, so one "
            "member at most carries traffic, although every link is up"
        )
    elif bond.ports is not None and bond.ports < up:
        yield f"{bond.ports} of the {up} members that are up are in LACP's active aggregation"


def _of_a_member(bond: Bond, member: Member) -> Iterator[str]:
    if not member.up:
        words = {"down": "has no link: look at its cable and port, and whether it is set up"}
        yield f"{member.name} {words.get(member.link, f'is {member.link}')}"
        return
    if member.duplex != "full":
        yield f"{member.name} runs in {member.duplex} duplex: one of its ends does not negotiate"
    if bond.aggregator is None or bond.alone:
        return
    if member.aggregator != bond.aggregator:
        yield (
            f"{member.name} is in aggregator {member.aggregator} and the active one is "
            f"{bond.aggregator}: it carries nothing. Is its cable in another switch or group?"
        )
    elif member.partner not in {None, bond.partner}:
        yield f"{member.name} leads to {member.partner} and the others to {bond.partner}"
    elif member.churned or member.refused_by:
        who = member.refused_by or "one of its ends"
        yield f"{member.name} is kept out of the aggregation by {who}"


def _of_sizes(state: State, peer: object) -> Iterator[str]:
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
    if not sizes.reached:
        yield f"{peer} does not answer at all, so nothing is known of the MTU up to it"
    elif not sizes.whole:
        yield (
            f"packets of {state.mtu} bytes do not come back from {peer}, small ones do: something "
            "on the way has a smaller MTU (a switch's port, or the peer)"
        )
    elif sizes.pieces:
        yield (
            f"packets of {state.mtu} bytes reach {peer}, and its answers come back in pieces: the "
            f"MTU of {peer}, or of a router on the way back, is smaller"
        )


def _of_the_far_end(bond: Bond, far: FarEnd | None) -> Iterator[str]:
    if far is None:
        return
    if far.trouble:
        yield f"the other end, {far.name} on {far.switch}, could not be seen: {far.trouble}"
    elif far.lag is None:
        yield f"{far.switch} has no {far.name}, where the inventory says that {bond.name} ends"
    else:
        yield from (f"{far.switch}: {finding}" for finding in far.lag.findings)
        yield from _of_both_ends(bond, far.switch, far.lag)


def _of_both_ends(bond: Bond, name: str, lag: Lag) -> Iterator[str]:
    up = sum(member.up for member in bond.members)
    if lag.members is not None and len(lag.bundled) != up:
        yield f"{len(lag.bundled)} ports are bundled on {name}, and {up} members are up here"
    lacp_there, lacp_here = lag.protocol == "LACP", bond.mode == dialect.LACP
    if lag.members is not None and lacp_there != lacp_here:
        there = "speaks" if lacp_there else "does not speak"
        yield f"{name} {there} LACP on {lag.name}, and the mode here is {bond.mode}"


def _of_sockets(bond: Bond, sockets: Sequence[Socket]) -> Iterator[str]:
    """Judge the ports of round-robin: each in a VLAN of its own, as its other end has to be."""
    if not sockets:
        return
    for trouble in dict.fromkeys(each.trouble for each in sockets if each.trouble):
        yield f"the ports that the cables end in could not be seen: {trouble}"
    if len(sockets) != len(bond.members):
        yield f"the inventory names {len(sockets)} ports, and the bond has {len(bond.members)}"
    for each in sockets:
        yield from _of_a_socket(each)
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


def _of_a_socket(socket: Socket) -> Iterator[str]:
    port = socket.port
    if port is None:
        if not socket.trouble:
            yield f"{socket.switch} has no port {socket.name}, which the inventory names"
        return
    if port.state != "up":
        yield f"{socket.switch}: {socket.name} is {port.state}"
    if not port.vlan:
        yield f"{socket.switch} does not tell the VLAN of {socket.name}"


def _since_last_time(state: State) -> Iterator[str]:
    earlier = state.earlier
    for member, count in _lost_since(state).items():
        if count and earlier:
            yield (
                f"{member} lost its link {_times(count)} since {earlier.at:%Y-%m-%d %H:%M} UTC, "
                "when this was last asked: look at its cable, transceiver and port"
            )


def _lost_since(state: State) -> Mapping[str, int]:
    """Return how often each member lost its link since last time; none of those new since."""
    table = state.earlier.report.table if state.earlier else None
    if table is None or tuple(table.columns) != _COLUMNS:
        return {}
    at = _COLUMNS.index("Failures")
    before = {row[0]: int(row[at]) for row in table.rows if row[at].isdecimal()}
    # A member that joined anew, or after a start of the host, counts from zero.
    return {
        each.name: each.failures - (before[each.name] if each.failures >= before[each.name] else 0)
        for each in state.bond.members
        if each.name in before
    }


def _notes(state: State) -> Iterator[str]:
    """Say what explains something, and what nothing has to be done about now."""
    bond = state.bond
    if state.sizes and state.sizes.pieces is None:
        yield (
            "whether the peer's answers come back in pieces is not known: this host receives "
            "other packets in pieces at the same time"
        )
    far = state.far_end
    if far and far.lag and far.lag.members is None:
        yield (
            f"{far.switch} does not tell which ports are in {far.lag.name}: they were not checked"
        )
    if bond.hides_lacp:
        yield (
            "the kernel tells LACP's partners and aggregators to root alone, so whether the "
            f"switch takes part is not known: {state.hidden}"
        )
    if bond.mode == dialect.ROUND_ROBIN and not state.sockets:
        yield (
            "round-robin gives one connection the speed of all members and mixes up its packets; "
            "each member's port wants a VLAN of its own through the switch, and no LACP: with "
            f"`{bond.name}.ports` in the inventory that is looked at"
        )
    if bond.mode == dialect.ACTIVE_BACKUP and bond.primary not in {"", bond.active}:
        yield f"{bond.active or 'nobody'} is active although {bond.primary} is the primary"
    failed = [f"{each.name} {_times(each.failures)}" for each in bond.members if each.failures]
    if failed:
        since = _lost_since(state)
        calm = ", and none since this was last asked" if since and not any(since.values()) else ""
        yield (
            f"links were lost since they joined the bond: {', '.join(failed)}{calm}; whether they "
            "still are, `bond watch` tells"
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _per_member(bond: Bond) -> str:
    return ", ".join(f"{each.name} {each.speed or 'unknown'}" for each in bond.members if each.up)


def _row(state: State, member: Member) -> Sequence[str]:
    link = state.links.get(member.name)
    partner = member.partner or "not told"
    lacp = "" if member.aggregator is None else f"{partner} ({member.aggregator})"
    return (
        member.name,
        member.link,
        str(member.speed or "unknown"),
        member.duplex,
        str(member.failures),
        lacp,
        "" if link is None else f"{link.errors:,}",
        state.drivers.get(member.name, ""),
    )
