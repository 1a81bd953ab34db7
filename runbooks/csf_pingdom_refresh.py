from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import Field

from connectors import csf, csf_list, pingdom
from connectors.command import Ask
from connectors.csf import Firewall
from connectors.pingdom import Feed
from connectors.public import Address
from connectors.trouble import NotUnderstood
from runbooks import Change, Host, Plan, Refused, Step, tagged

_BEGIN = "Begin a probation: the host saves list and rules, and puts them back by itself"
_END = "End the probation over a new connection"

# So many addresses are named; the rest are counted.
_NAMED = 40


@dataclass(frozen=True)
class Probes:
    """Whom the host lets in, and whom it should."""

    firewall: Firewall
    feed: Feed


class RefreshPingdom(
    Change[Probes],
    words="csf pingdom refresh",
    example="web1",
    undo="puts the list of before back",
):
    """Let Pingdom's probes through csf, as Pingdom lists them now."""

    host: Host = tagged("csf")
    accept_size_change: Annotated[
        bool,
        Field(
            title="Accept a much different list",
            description="Take a list that lost or gained much: somebody has compared it",
        ),
    ] = False

    start: Annotated[
        Literal["no", "firewall"],
        Field(description="Turn the firewall on where csf's rules are not loaded: firewall"),
    ] = "no"

    def read(self, ask: Ask) -> Probes:
        feed = ask(self.host, pingdom.feed())
        return Probes(ask(self.host, csf.firewall()), feed)

    def plan(self, probes: Probes) -> Plan:
        firewall, feed = probes.firewall, probes.feed
        _refuse_what_cannot_be(firewall)
        own = firewall.own or ""
        old, listed = _kept(own), frozenset(filter(firewall.knows, feed.addresses))
        new = listed | frozenset(filter(firewall.knows, feed.list_kept(old)))
        absent = [address for address in new if not firewall.lets_in(address)]
        if not firewall.off and old == new and not absent:
            return Plan(
                f"{self.host} lets in all {len(listed)} addresses of Pingdom's probes",
                notes=tuple(_skipped(feed, new - listed)),
            )
        self._refuse_to_start(firewall)
        _refuse_what_contradicts(firewall, listed)
        odd = list(_oddities(old, feed.addresses))
        if odd and not self.accept_size_change:
            raise Refused(
                f"{'; '.join(odd)}: compare it with my.pingdom.com/probes, and if it is right "
                "ask again with accept_size_change=true"
            )
        return Plan(
            _because(firewall, old, new, absent),
            self._steps(firewall, own, csf_list.listing(new, "pingdom")),
            [
                *_starting(firewall),
                *_difference(old, new),
                *_skipped(feed, new - listed),
                *_notes(probes, new),
                *(f"Accepted: {why}." for why in odd),
            ],
        )

    def _refuse_to_start(self, firewall: Firewall) -> None:
        if firewall.off and self.start != "firewall":
            raise Refused(
                f"the firewall is off: csf's rules are not loaded into {firewall.off}, and "
                "loading the list would turn it on. Find out who flushed them and why; if it is "
                "to be turned on, ask again with start=firewall"
            )

    def _steps(self, firewall: Firewall, own: str, listing: str) -> Sequence[Step]:
        """Begin, load, keep. Undone from the last to the first they are the same three again."""
        restart = firewall.restart
        before, after = (f"{len(csf_list.addresses(text))} addresses" for text in (own, listing))
        return [
            Step(
                _BEGIN,
                self.host,
                do=csf_list.begin_probation(listing, restart=restart),
                undo=csf_list.keep(own),
                undo_title=_END,
            ),
            Step(
                "Turn the firewall on, with Keyturn's list replaced"
                if firewall.off
                else "Replace Keyturn's list and load it",
                self.host,
                do=csf_list.load(listing, restart=restart),
                undo=csf_list.load(own, restart=restart),
                before=f"the firewall is off, {before}" if firewall.off else before,
                after=f"the firewall is on, {after}" if firewall.off else after,
            ),
            Step(
                _END,
                self.host,
                do=csf_list.keep(listing),
                undo=csf_list.begin_probation(own, restart=restart),
                undo_title=_BEGIN,
            ),
        ]


def _kept(own: str) -> frozenset[Address]:
    try:
        return csf_list.addresses(own)
    except NotUnderstood as strange:
        raise Refused(str(strange)) from None


def _refuse_what_cannot_be(firewall: Firewall) -> None:
    if not firewall.enabled:
        raise Refused("csf is disabled on this host: enable it with csf -e first")
    if firewall.testing:
        raise Refused(
            "csf is in its TESTING mode, which takes all rules away every five minutes: "
            'set TESTING = "0" in csf.conf first'
        )
    if firewall.on_probation:
        raise Refused(
            "a list is on probation on this host, and nobody has kept it: ask again in some "
            "minutes, when the host has put the one of before back"
        )
    if firewall.own is None or not firewall.included:
        file = firewall.include.removeprefix("Include ")
        raise Refused(
            f"csf does not read Keyturn's list yet: as root, once, touch {file} and put the line "
            f"“{firewall.include}” into csf.allow"
        )


def _refuse_what_contradicts(firewall: Firewall, new: Collection[Address]) -> None:
    if mine := sorted(map(str, firewall.mine & frozenset(new))):
        raise Refused(
            f"Pingdom's feed lists {', '.join(mine)}, which is this host itself: do not believe it"
        )
    for entry, comment in firewall.deny.items():
        if not comment.startswith("lfd:") and (denied := _among(entry, new)):
            raise Refused(
                f"Pingdom's feed lists {denied[0]}, and csf.deny has {entry} ({comment}), which "
                "lfd did not put there: take that out, or find out why the feed lists it"
            )


def _among(entry: str, addresses: Collection[Address]) -> Sequence[Address]:
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return ()  # an advanced rule, which is about ports
    return [each for each in addresses if each.version == network.version and each in network]


def _oddities(old: Collection[Address], new: Collection[Address]) -> Iterator[str]:
    """Say what no week at Pingdom does: a fifth of the addresses gone, or half as many new."""
    for version in (4, 6):
        had = {address for address in old if address.version == version}
        has = {address for address in new if address.version == version}
        gone, come = len(had - has), len(has - had)
        if had and gone * 5 > len(had):
            yield (
                f"Pingdom's feed has lost {gone} of the {len(had)} IPv{version} addresses of "
                "this host's list, more than 20 %"
            )
        if had and come * 2 > len(had):
            yield (
                f"Pingdom's feed has {come} IPv{version} addresses more than the {len(had)} of "
                "this host's list, more than 50 %"
            )


def _starting(firewall: Firewall) -> Iterator[str]:
    if firewall.off:
        yield (
            "This turns the firewall on: what csf's rules do not let in is kept out from then on. "
            "An undo brings the list of before back and leaves the firewall on."
        )


def _because(
    firewall: Firewall,
    old: Collection[Address],
    new: Collection[Address],
    absent: Collection[Address],
) -> str:
    if firewall.off:
        return f"The firewall is off: csf's rules are not loaded into {firewall.off}"
    if old == new:
        return f"The list is right, but {len(absent)} of its {len(new)} addresses are not in force"
    come, gone = len(set(new) - set(old)), len(set(old) - set(new))
    return f"Pingdom's probes have {come} new addresses, and {gone} are gone"


def _difference(old: Collection[Address], new: Collection[Address]) -> Iterator[str]:
    for verb, addresses in (("Adds", set(new) - set(old)), ("Removes", set(old) - set(new))):
        if addresses:
            yield f"{verb} {len(addresses)}: {_named(addresses)}."


def _skipped(feed: Feed, kept: Collection[Address]) -> Iterator[str]:
    """Name the items of the feed that were skipped, and what stays on the list for them."""
    yield from (f"Skipped in Pingdom's feed: {why}." for why in feed.odd)
    if kept:
        yield (
            f"Keeps {len(kept)} that may belong to what was skipped, until the feed is right "
            f"again: {_named(kept)}."
        )


def _named(addresses: Collection[Address]) -> str:
    ordered = sorted(addresses, key=lambda address: (address.version, int(address)))
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(map(str, ordered[:_NAMED])) + more


def _notes(probes: Probes, new: Collection[Address]) -> Iterator[str]:
    firewall, feed = probes.firewall, probes.feed
    yield "Whoever is on the list reaches every port of the host."
    yield (
        "csf loads all its rules anew, so that changes that somebody made to its files and did "
        "not load yet come into force too."
    )
    yield "Unless the list is kept over a new connection, the host puts the one of before back."
    if unknown := sum(not firewall.knows(address) for address in feed.addresses):
        yield f"csf filters no IPv6 here: {unknown} addresses are left out."
    if feed.inactive:
        yield f"The feed lists {feed.inactive} more probes that are not active: not taken."
    if feed.built:
        yield f"The feed says that it was made on {feed.built}."
    by_hand = [entry for entry in firewall.allow if _among(entry, new)]
    if by_hand:
        yield f"{len(by_hand)} entries of csf.allow let some of them in too: left as they are."
    blocked = [
        entry
        for entry, comment in firewall.deny.items()
        if comment.startswith("lfd:") and _among(entry, new)
    ]
    if blocked:
        yield f"lfd has blocked {', '.join(blocked)} of them: being allowed counts for more."
