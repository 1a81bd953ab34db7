"""An inquiry: a policy asked about everybody, everything and everywhere. Pure.

Whoever and whatever the rules cannot tell apart is asked about once.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from bot.model.runbook_info import RunbookInfo
from bot.policy import Policy, Request, Ruling
from bot.policy.freezes import Freezes
from connectors.inventory import Host

_DOORS = {
    "slack": "in chat",
    "api": "through the API",
    "cli": "on the command line",
    "schedule": "by a schedule",
}
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEDNESDAY, _NOON = 2, 12
_MOST_HOSTS = 100
_ALWAYS = Freezes.model_validate(
    {"freezes": [{"name": "always", "from": "2000-01-01 00:00", "until": "9000-01-01 00:00"}]}
)


@dataclass(frozen=True)
class Circumstances:
    """Of an ordinary request: made on the web pages, on a Wednesday at noon, for one host, by
    somebody who has had it done before, outside of freezes.

    weekday: 0 is Monday; with the hour, where the host stands.
    """

    door: str = "web"
    weekday: int = _WEDNESDAY
    hour: int = _NOON
    hosts: int = 1
    novel: bool = False
    frozen: bool = False

    @property
    def freezes(self) -> Freezes:
        return _ALWAYS if self.frozen else Freezes()

    def moment(self, week: datetime, zone: str) -> int:
        """Return when that is in the week, in microseconds since 1970."""
        day = week.date() + timedelta(days=self.weekday - week.weekday())
        there = datetime.combine(day, time(self.hour), ZoneInfo(zone))
        return round(there.timestamp()) * 1_000_000


@dataclass(frozen=True)
class Variation:
    """One way in which a request is not ordinary. place: its place among those of its kind.

    words: of this one alone; until: how a run of them ends, for what can be counted.
    """

    kind: str
    place: int
    words: str
    circumstances: Circumstances
    until: str = ""


def list_variations(mentioned: Set[str]) -> list[Variation]:
    """Return what could matter to rules that look at these attributes and numbers."""
    found: list[Variation] = []
    if "door" in mentioned:
        found += [
            Variation("door", n, f"it is asked for {words}", Circumstances(door=door))
            for n, (door, words) in enumerate(_DOORS.items())
        ]
    if "weekday" in mentioned:
        found += [
            Variation("weekday", n, f"it is {day}", Circumstances(weekday=n))
            for n, day in enumerate(_DAYS)
        ]
    if "hour" in mentioned:
        found += [_hour(hour) for hour in range(24)]
    if "hosts" in mentioned:
        found += _hosts({int(word) for word in mentioned if word.isdecimal()})
    if "novel" in mentioned:
        words = "the asker has never had it succeed"
        found.append(Variation("novel", 0, words, Circumstances(novel=True)))
    if "frozen" in mentioned:
        found.append(Variation("frozen", 0, "a freeze holds", Circumstances(frozen=True)))
    return found


def _hour(hour: int) -> Variation:
    end = f"{(hour + 1) % 24:02}:00"
    return Variation("hour", hour, f"it is from {hour:02}:00", Circumstances(hour=hour), end)


def _hosts(numbers: Set[int]) -> list[Variation]:
    """Return requests for several hosts: as many as the rules speak of, and one more."""
    steps = {2} | {n + more for n in numbers for more in (0, 1) if 2 <= n + more <= _MOST_HOSTS}
    ordered = sorted(steps)
    return [
        Variation("hosts", place, f"it is for {low}", Circumstances(hosts=low), str(high - 1))
        for place, (low, high) in enumerate(pairwise([*ordered, _MOST_HOSTS]))
    ]


def describe_variations(alike: Sequence[Variation]) -> str:
    """Return in words what makes no difference among them: `it is from 18:00 to 06:00`."""
    runs: list[list[Variation]] = []
    for one in alike:
        if runs and one.place == runs[-1][-1].place + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    if alike[0].kind == "hour" and len(runs) > 1 and (alike[0].place, alike[-1].place) == (0, 23):
        # The night is one stretch, though the count begins anew at midnight.
        runs[0] = runs.pop() + runs[0]
    parts = [_run(run) for run in runs]
    first, *rest = parts
    lead = _LEADS[alike[0].kind]
    return " or ".join([first, *(part.removeprefix(lead) for part in rest)])


_LEADS = {
    "door": "it is asked for ",
    "weekday": "it is ",
    "hour": "it is ",
    "hosts": "it is for ",
    "novel": "",
    "frozen": "",
}


def _run(run: Sequence[Variation]) -> str:
    first, last = run[0], run[-1]
    if first.kind == "hour":
        return f"{first.words} to {last.until}"
    if first.kind == "hosts":
        if last.until == str(_MOST_HOSTS - 1):
            return f"{first.words} hosts or more"
        low = first.circumstances.hosts
        return f"{first.words} {'hosts' if str(low) == last.until else f'to {last.until} hosts'}"
    lead = _LEADS[first.kind]
    return " or ".join([first.words, *(one.words.removeprefix(lead) for one in run[1:])])


ORDINARY = Circumstances()


@dataclass(frozen=True)
class RequestKind:
    """What may be asked for. reversible: whether all of it can be taken back."""

    words: str
    kind: str
    reversible: bool = True


Place = tuple[str, RequestKind]


class PolicyProbe:
    """Asks one policy, as it is under some circumstances in the week of *now*.

    hosts, people, deeds: those that stand for all, each with all that it stands for.
    """

    def __init__(
        self,
        policy: Policy,
        leaflets: Sequence[RunbookInfo],
        now: datetime,
        circumstances: Circumstances = ORDINARY,
    ) -> None:
        supposed = [_supposed(area) for area in list_areas_without_hosts(policy)]
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


def list_areas_without_hosts(policy: Policy) -> list[str]:
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


def _deeds(
    leaflets: Sequence[RunbookInfo], *, told_apart: bool
) -> dict[RequestKind, tuple[RequestKind, ...]]:
    groups: dict[tuple[str, bool, str], list[RequestKind]] = {}
    for leaflet in leaflets:
        for reversible in _ends(leaflet):
            deed = RequestKind(leaflet.words, leaflet.kind, reversible)
            groups.setdefault(
                (deed.kind, reversible, deed.words if told_apart else ""), []
            ).append(deed)
    return {deeds[0]: tuple(deeds) for deeds in groups.values()}


def _ends(leaflet: RunbookInfo) -> Sequence[bool]:
    """Return whether it can be taken back; a plan of what usually can may hold what cannot."""
    if leaflet.kind == "check":
        return (True,)
    return (True, False) if leaflet.undo else (False,)
