"""An inquiry: a policy asked about everybody, everything and everywhere. Pure.

Whoever and whatever the rules cannot tell apart is asked about once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.charter.circumstances import Circumstances
from bot.leaflet import Leaflet
from bot.policy import Policy, Request, Ruling
from connectors.inventory import Host

ORDINARY = Circumstances()


@dataclass(frozen=True)
class Deed:
    """What may be asked for. reversible: whether all of it can be taken back."""

    words: str
    kind: str
    reversible: bool = True


Place = tuple[str, Deed]


class Inquiry:
    """Asks one policy, as it is under some circumstances in the week of *now*.

    hosts, people, deeds: those that stand for all, each with all that it stands for.
    """

    def __init__(
        self,
        policy: Policy,
        leaflets: Sequence[Leaflet],
        now: datetime,
        circumstances: Circumstances = ORDINARY,
    ) -> None:
        supposed = [_supposed(area) for area in hostless(policy)]
        self.policy = policy.supposing(supposed, circumstances.freezes)
        self.hosts = _alike(self.policy.hosts_alike)
        self.people = _alike(self.policy.likenesses("Person"))
        self.deeds = _deeds(leaflets, told_apart="runbook" in policy.mentioned)
        self._circumstances, self._now = circumstances, now
        self._like = {one: like for like, people in self.people.items() for one in people}
        self._approvals: dict[tuple[str, Place, Ruling], Ruling] = {}

    def request(self, person: str, place: Place) -> Request:
        host, deed = place
        known = self._circumstances
        return Request(
            runbook=deed.words,
            kind=deed.kind,
            host=host,
            door=known.door,
            asked_by=person,
            reversible=deed.reversible,
            hosts=(host,) * known.hosts if known.hosts > 1 else (),
            now=known.moment(self._now, self.policy.inventory[host].zone),
            novel=known.novel,
        )

    def rulings(self, person: str) -> dict[Place, Ruling]:
        """Return what is said to everything that one person could ask for."""
        places = [(host, deed) for host in self.hosts for deed in self.deeds]
        return {place: self.policy.may_ask(self.request(person, place)) for place in places}

    def emergencies(self, person: str) -> dict[Place, Ruling]:
        """Return what is said if that person wanted to do it through a freeze and alone."""
        places = [(host, deed) for host in self.hosts for deed in self.deeds]
        changes = [place for place in places if place[1].kind == "change"]
        return {
            place: self.policy.may_break_glass(self.request(person, place)) for place in changes
        }

    def views(self, person: str) -> dict[Place, Ruling]:
        """Return what is said if that person wanted to view what others have done."""
        return {
            (host, deed): self.policy.may_view(person, self.request(person, (host, deed)))
            for host in self.hosts
            for deed in self.deeds
        }

    def approval(self, person: str, place: Place, ruling: Ruling) -> Ruling:
        """Return what is said to this person's approval of what somebody else asks for."""
        question = (self._like[person], place, ruling)
        if question not in self._approvals:
            request = self.request("", place)
            self._approvals[question] = self.policy.may_approve(person, request, ruling)
        return self._approvals[question]

    def approvers(self, place: Place, ruling: Ruling) -> frozenset[str]:
        """Return everybody whose approval would count, if somebody else asked."""
        return frozenset(
            person
            for like, people in self.people.items()
            if self.approval(like, place, ruling).allowed
            for person in people
        )


def hostless(policy: Policy) -> list[str]:
    """Return the areas that no host is in."""
    inhabited = {host.area for host in policy.inventory}
    return [area for area in policy.household.areas if area not in inhabited]


def _supposed(area: str) -> Host:
    """Stand in for the hosts that an area will have."""
    return Host.model_construct(name=f"any host of {area}", area=area)


def _alike(likenesses: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return one of each kind, and all that are like it."""
    groups: dict[str, list[str]] = {}
    for name, likeness in likenesses.items():
        groups.setdefault(likeness, []).append(name)
    return {names[0]: tuple(names) for names in groups.values()}


def _deeds(leaflets: Sequence[Leaflet], *, told_apart: bool) -> dict[Deed, tuple[Deed, ...]]:
    groups: dict[tuple[str, bool, str], list[Deed]] = {}
    for leaflet in leaflets:
        for reversible in _ends(leaflet):
            deed = Deed(leaflet.words, leaflet.kind, reversible)
            groups.setdefault(
                (deed.kind, reversible, deed.words if told_apart else ""), []
            ).append(deed)
    return {deeds[0]: tuple(deeds) for deeds in groups.values()}


def _ends(leaflet: Leaflet) -> Sequence[bool]:
    """Return whether it can be taken back; a plan of what usually can may hold what cannot."""
    if leaflet.kind == "check":
        return (True,)
    return (True, False) if leaflet.undo else (False,)
