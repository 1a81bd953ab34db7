from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from connectors import bond as bonds
from connectors.bond import BondSample
from connectors.command import QueryRunner
from runbooks import BondName, Check, Host, Report, Table

Samples = tuple[BondSample, BondSample]

# Bytes per second: with less traffic, the shares of members mean nothing.
_QUIET = 10_000


@dataclass(frozen=True)
class _MemberTraffic:
    """The activity of one member between the samples."""

    name: str
    link_before: str
    link_after: str
    failures: int
    errors: int
    sent: float
    """Bytes per second."""
    received: float
    """Bytes per second."""


class BondWatch(
    Check[Samples],
    words="bond watch",
    example="nas1 bond0 10",
    columns=("Member", "Link", "Failures", "Sent Mbit/s", "Share", "Received Mbit/s", "Share"),
):
    """Watch a network bond for some seconds: lost links, and the traffic of each member."""

    host: Host
    bond: BondName = "bond0"
    seconds: int = Field(default=10, ge=1, le=60, description="How long to watch, 1 to 60")

    def read(self, run_query: QueryRunner) -> Samples:
        return run_query(self.host, bonds.query_samples(self.bond, seconds=self.seconds))

    def report(self, samples: Samples) -> Report:
        members = _compute_traffic(samples)
        sent = sum(each.sent for each in members)
        received = sum(each.received for each in members)
        findings = [
            *(
                ()
                if samples[1].bond.members
                else (f"{self.bond} has no members: it carries no traffic",)
            ),
            *_list_membership_changes(samples),
            *(each for m in members for each in _list_findings(m)),
        ]
        notes = _list_idle_members(samples[1], members, sent)
        elapsed = samples[1].uptime - samples[0].uptime
        return Report.from_findings(
            f"{self.bond} on {self.host} sent {_format_mbit(sent)} and received "
            f"{_format_mbit(received)} Mbit/s "
            f"for {elapsed:.0f} s; "
            + (f"{len(findings)} to fix" if findings else "no link was lost"),
            findings,
            notes=notes,
            table=Table(
                self.columns,
                [_format_row(each, sent, received) for each in members],
            ),
        )


def _compute_traffic(samples: Samples) -> list[_MemberTraffic]:
    before, after = samples
    seconds = max(after.uptime - before.uptime, 0.01)
    earlier = {member.name: member for member in before.bond.members}
    return [
        _MemberTraffic(
            member.name,
            earlier[member.name].link_state,
            member.link_state,
            member.failure_count - earlier[member.name].failure_count,
            after.links[member.name].error_count - before.links[member.name].error_count,
            (after.links[member.name].sent_bytes - before.links[member.name].sent_bytes) / seconds,
            (after.links[member.name].received_bytes - before.links[member.name].received_bytes)
            / seconds,
        )
        for member in after.bond.members
        if member.name in earlier and _is_counted(member.name, samples)
    ]


def _is_counted(name: str, samples: Samples) -> bool:
    return all(name in sample.links for sample in samples)


def _list_membership_changes(samples: Samples) -> Iterator[str]:
    before, after = ({member.name for member in sample.bond.members} for sample in samples)
    yield from (f"{name} left the bond" for name in sorted(before - after))
    yield from (f"{name} joined the bond" for name in sorted(after - before))
    yield from (
        f"{name} is not among the interfaces that `ip` lists, so its traffic is unknown"
        for name in sorted(after & before)
        if not _is_counted(name, samples)
    )


def _list_findings(member: _MemberTraffic) -> Iterator[str]:
    if member.failures > 0:
        times = "once" if member.failures == 1 else f"{member.failures} times"
        yield (
            f"{member.name} lost its link {times} meanwhile: check its cable, transceiver and port"
        )
    elif member.link_before != member.link_after:
        yield f"{member.name} changed from {member.link_before} to {member.link_after} meanwhile"
    elif member.link_after != "up":
        yield f"{member.name} is {member.link_after}"
    if member.errors > 0:
        yield f"{member.name} had {member.errors:,} errors meanwhile: check its cable and port"


def _list_idle_members(
    sample: BondSample, members: Sequence[_MemberTraffic], sent: float
) -> list[str]:
    if sent < _QUIET or sample.bond.mode == bonds.ACTIVE_BACKUP:
        return []
    return [
        f"{each.name} is up and sent nothing: with few connections the hash may not use a member"
        for each in members
        if each.link_after == "up" and each.sent == 0
    ]


def _format_row(member: _MemberTraffic, sent: float, received: float) -> Sequence[str]:
    return (
        member.name,
        member.link_after,
        f"+{member.failures}",
        _format_mbit(member.sent),
        _format_share(member.sent, sent),
        _format_mbit(member.received),
        _format_share(member.received, received),
    )


def _format_mbit(rate: float) -> str:
    return f"{rate * 8 / 1_000_000:,.1f}"


def _format_share(value: float, total: float) -> str:
    return f"{100 * value / total:.0f} %" if total > 0 else ""
