from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import bond as dialect
from connectors.bond import Look
from connectors.command import Ask
from runbooks import Check, Host, Report, Table

BondName = Annotated[
    str,
    Field(
        pattern=dialect.NAME,
        description="The bond, such as bond0, without a VLAN",
        json_schema_extra={"lists": "bonds"},
    ),
]
Looks = tuple[Look, Look]

# Below so many bytes a second there is too little traffic to say who carries it.
_QUIET = 10_000


@dataclass(frozen=True)
class _Moved:
    """What one member did meanwhile. sent, received: bytes a second."""

    name: str
    was: str
    now: str
    failures: int
    errors: int
    sent: float
    received: float


class BondWatch(Check[Looks], words="bond watch", example="nas1 bond0 10"):
    """See what moves on a network bond within some seconds: links lost, and who carries what."""

    host: Host
    bond: BondName = "bond0"
    seconds: int = Field(default=10, ge=1, le=60, description="How long to watch, 1 to 60")

    def read(self, ask: Ask) -> Looks:
        return ask(self.host, dialect.watched(self.bond, seconds=self.seconds))

    def report(self, looks: Looks) -> Report:
        members = _moved(looks)
        sent = sum(each.sent for each in members)
        received = sum(each.received for each in members)
        findings = [*_joined_and_left(looks), *(each for m in members for each in _troubles(m))]
        notes = _idle(looks[1], members, sent)
        elapsed = looks[1].seconds - looks[0].seconds
        return Report(
            f"{self.bond} on {self.host} sent {_mbit(sent)} and received {_mbit(received)} Mbit/s "
            f"for {elapsed:.0f} s; "
            + (f"{len(findings)} to look at" if findings else "all links held"),
            healthy=not findings,
            findings=[*findings, *notes],
            table=Table(
                ("Member", "Link", "Failures", "Sent Mbit/s", "Share", "Received Mbit/s", "Share"),
                [_row(each, sent, received) for each in members],
            ),
        )


def _moved(looks: Looks) -> list[_Moved]:
    before, after = looks
    seconds = max(after.seconds - before.seconds, 0.01)
    earlier = {member.name: member for member in before.bond.members}
    return [
        _Moved(
            member.name,
            earlier[member.name].link,
            member.link,
            member.failures - earlier[member.name].failures,
            after.links[member.name].errors - before.links[member.name].errors,
            (after.links[member.name].sent - before.links[member.name].sent) / seconds,
            (after.links[member.name].received - before.links[member.name].received) / seconds,
        )
        for member in after.bond.members
        if member.name in earlier
    ]


def _joined_and_left(looks: Looks) -> Iterator[str]:
    before, after = ({member.name for member in look.bond.members} for look in looks)
    yield from (f"{name} left the bond" for name in sorted(before - after))
    yield from (f"{name} joined the bond" for name in sorted(after - before))


def _troubles(member: _Moved) -> Iterator[str]:
    if member.failures > 0:
        times = "once" if member.failures == 1 else f"{member.failures} times"
        yield f"{member.name} lost its link {times} while we watched: cable, transceiver or port"
    elif member.was != member.now:
        yield f"{member.name} went from {member.was} to {member.now} while we watched"
    elif member.now != "up":
        yield f"{member.name} is {member.now}"
    if member.errors > 0:
        yield f"{member.name} had {member.errors:,} errors while we watched: cable or port"


def _idle(look: Look, members: Sequence[_Moved], sent: float) -> list[str]:
    if sent < _QUIET or look.bond.mode == dialect.ACTIVE_BACKUP:
        return []
    return [
        f"{each.name} is up and sent nothing: with few connections a hash may leave a member out"
        for each in members
        if each.now == "up" and each.sent == 0
    ]


def _row(member: _Moved, sent: float, received: float) -> Sequence[str]:
    return (
        member.name,
        member.now,
        f"+{member.failures}",
        _mbit(member.sent),
        _share(member.sent, sent),
        _mbit(member.received),
        _share(member.received, received),
    )


def _mbit(rate: float) -> str:
    return f"{rate * 8 / 1_000_000:,.1f}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else ""
