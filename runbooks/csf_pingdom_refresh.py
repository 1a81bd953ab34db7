from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import Field

from connectors import csf, csf_list, pingdom
from connectors.command import QueryRunner
from connectors.csf import Firewall
from connectors.errors import ParseError
from connectors.pingdom import ProbeFeed
from connectors.probation import Probation
from connectors.public_addresses import Address
from runbooks import Change, Host, Plan, Refused, Step, make_host_field
from runbooks._csf import refuse_unusable_firewall

# How many addresses are listed; the others are counted.
_NAMED = 40


@dataclass(frozen=True)
class ProbeState:
    """The host's firewall, and Pingdom's probes."""

    firewall: Firewall
    feed: ProbeFeed


class RefreshPingdom(
    Change[ProbeState],
    words="csf pingdom refresh",
    also_called=("pingdom down",),
    example="web1",
    undo="restores the previous list",
):
    """Allow Pingdom's current probes in csf."""

    host: Host = make_host_field("csf")
    accept_size_change: Annotated[
        bool,
        Field(
            title="Accept a much different list",
            description="Accept a list that lost or gained many addresses, after you compared it",
        ),
    ] = False

    start: Annotated[
        Literal["no", "firewall"],
        Field(description="Turn the firewall on where csf's rules are not loaded: firewall"),
    ] = "no"

    def read(self, run_query: QueryRunner) -> ProbeState:
        feed = run_query(self.host, pingdom.query_feed())
        return ProbeState(run_query(self.host, csf.query_firewall()), feed)

    def get_probation(self) -> Probation:
        return csf_list.PROBATION

    def plan(self, probes: ProbeState) -> Plan:
        firewall, feed = probes.firewall, probes.feed
        _refuse_unused_list(firewall)
        own = firewall.own_list or ""
        old, listed = _parse_own_list(own), frozenset(filter(firewall.can_filter, feed.addresses))
        new = listed | frozenset(filter(firewall.can_filter, feed.list_kept_addresses(old)))
        absent = [address for address in new if not firewall.is_allowed(address)]
        if not firewall.missing_tables and old == new and not absent:
            return Plan(
                f"{self.host} allows all {len(listed)} addresses of Pingdom's probes",
                notes=tuple(_list_skipped(feed, new - listed)),
            )
        self._refuse_start(firewall)
        _refuse_contradictions(firewall, listed)
        size_changes = list(_list_size_changes(old, feed.addresses))
        if size_changes and not self.accept_size_change:
            raise Refused(
                f"{'; '.join(size_changes)}: compare it with my.pingdom.com/probes, and if it is "
                "correct request it with accept_size_change=true"
            )
        return Plan(
            _format_current_state(firewall, old, new, absent),
            [self._make_step(firewall, own, csf_list.format_list(new, "pingdom"))],
            [
                *_list_start_notes(firewall),
                *_list_differences(old, new),
                *_list_skipped(feed, new - listed),
                *_list_notes(probes, new),
                *(f"Accepted: {change}." for change in size_changes),
            ],
        )

    def _refuse_start(self, firewall: Firewall) -> None:
        if firewall.missing_tables and self.start != "firewall":
            raise Refused(
                "the firewall is off: csf's rules are not loaded into "
                f"{firewall.missing_tables}, and loading the list would turn it on. Find out who "
                "flushed them and why. To turn the firewall on, request it with start=firewall"
            )

    def _make_step(self, firewall: Firewall, own: str, listing: str) -> Step:
        restart = firewall.reload_option
        before, after = (f"{len(csf_list.parse_list(text))} addresses" for text in (own, listing))
        return Step(
            "Replace Keyturn's list and turn the firewall on"
            if firewall.missing_tables
            else "Replace Keyturn's list and load it",
            self.host,
            do=csf_list.load_list(listing, restart=restart),
            undo=csf_list.load_list(own, restart=restart),
            before=f"the firewall is off, {before}" if firewall.missing_tables else before,
            after=f"the firewall is on, {after}" if firewall.missing_tables else after,
        )


def _parse_own_list(own: str) -> frozenset[Address]:
    try:
        return csf_list.parse_list(own)
    except ParseError as error:
        raise Refused(str(error)) from None


def _refuse_unused_list(firewall: Firewall) -> None:
    refuse_unusable_firewall(firewall)
    if firewall.own_list is None or not firewall.is_included:
        file = firewall.include_line.removeprefix("Include ")
        raise Refused(
            f"csf does not read Keyturn's list yet: as root, once, run touch {file} and add the "
            f"line “{firewall.include_line}” to csf.allow"
        )


def _refuse_contradictions(firewall: Firewall, new: Collection[Address]) -> None:
    if mine := sorted(map(str, firewall.own_addresses & frozenset(new))):
        raise Refused(
            f"Pingdom's feed lists {', '.join(mine)}, which is this host itself: do not trust it"
        )
    for entry, comment in firewall.deny.items():
        if not comment.startswith("lfd:") and (denied := _find_covered(entry, new)):
            raise Refused(
                f"Pingdom's feed lists {denied[0]}, but csf.deny has {entry} ({comment}), which "
                "lfd did not add: remove that entry, or find out why the feed lists the address"
            )


def _find_covered(entry: str, addresses: Collection[Address]) -> Sequence[Address]:
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return ()  # an advanced rule, which is for ports
    return [each for each in addresses if each.version == network.version and each in network]


def _list_size_changes(old: Collection[Address], new: Collection[Address]) -> Iterator[str]:
    """Yield unusual changes: a fifth of the addresses removed, or half as many added."""
    for version in (4, 6):
        had = {address for address in old if address.version == version}
        has = {address for address in new if address.version == version}
        gone, come = len(had - has), len(has - had)
        if had and gone * 5 > len(had):
            yield (
                f"Pingdom's feed lacks {gone} of the {len(had)} IPv{version} addresses in this "
                "host's list, more than 20 %"
            )
        if had and come * 2 > len(had):
            yield (
                f"Pingdom's feed has {come} new IPv{version} addresses, more than 50 % of the "
                f"{len(had)} in this host's list"
            )


def _list_start_notes(firewall: Firewall) -> Iterator[str]:
    if firewall.missing_tables:
        yield (
            "This turns the firewall on: it then blocks everything that csf's rules do not allow. "
            "Undo restores the previous list and leaves the firewall on."
        )


def _format_current_state(
    firewall: Firewall,
    old: Collection[Address],
    new: Collection[Address],
    absent: Collection[Address],
) -> str:
    if firewall.missing_tables:
        return f"The firewall is off: csf's rules are not loaded into {firewall.missing_tables}"
    if old == new:
        return (
            f"The list is current, but {len(absent)} of its {len(new)} addresses are not in force"
        )
    come, gone = len(set(new) - set(old)), len(set(old) - set(new))
    return f"Pingdom's probes have {come} new addresses, and {gone} were removed"


def _list_differences(old: Collection[Address], new: Collection[Address]) -> Iterator[str]:
    for verb, addresses in (("Adds", set(new) - set(old)), ("Removes", set(old) - set(new))):
        if addresses:
            yield f"{verb} {len(addresses)}: {_format_addresses(addresses)}."


def _list_skipped(feed: ProbeFeed, kept: Collection[Address]) -> Iterator[str]:
    """Yield the skipped items of the feed, and the addresses that stay on the list for them."""
    yield from (f"Skipped in Pingdom's feed: {reason}." for reason in feed.skip_reasons)
    if kept:
        yield (
            f"Keeps {len(kept)} addresses that may belong to skipped items, until the feed is "
            f"correct again: {_format_addresses(kept)}."
        )


def _format_addresses(addresses: Collection[Address]) -> str:
    ordered = sorted(addresses, key=lambda address: (address.version, int(address)))
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(map(str, ordered[:_NAMED])) + more


def _list_notes(probes: ProbeState, new: Collection[Address]) -> Iterator[str]:
    firewall, feed = probes.firewall, probes.feed
    yield "An address on the list can reach every port of the host."
    yield (
        "csf reloads all its rules: changes to its files that were not loaded yet come into "
        "force too."
    )
    if unknown := sum(not firewall.can_filter(address) for address in feed.addresses):
        yield f"csf does not filter IPv6 here: {unknown} addresses are skipped."
    if feed.inactive_count:
        yield f"The feed lists {feed.inactive_count} more probes that are not active: skipped."
    if feed.built_at:
        yield f"The feed is dated {feed.built_at}."
    by_hand = [entry for entry in firewall.allow if _find_covered(entry, new)]
    if by_hand:
        yield f"{len(by_hand)} entries of csf.allow also allow some of them: not changed."
    blocked = [
        entry
        for entry, comment in firewall.deny.items()
        if comment.startswith("lfd:") and _find_covered(entry, new)
    ]
    if blocked:
        yield f"lfd has blocked {', '.join(blocked)} of them: csf allows them all the same."
