"""An inquiry: a policy asked about everybody, everything and everywhere. Pure.

Whoever and whatever the rules cannot tell apart is asked about once.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from bot.model.runbook_info import RunbookInfo
from bot.policy import Policy, PolicyRequest, Ruling
from bot.policy.freezes import FreezeList
from connectors.inventory import Host

_SOURCE_LABELS = {
    "slack": "in chat",
    "api": "through the API",
    "cli": "on the command line",
    "schedule": "by a schedule",
}
_WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEDNESDAY, _NOON = 2, 12
_MAX_HOSTS = 100
_PERMANENT_FREEZE = FreezeList.model_validate(
    {"freezes": [{"name": "always", "from": "2000-01-01 00:00", "until": "9000-01-01 00:00"}]}
)


@dataclass(frozen=True)
class Circumstances:
    """Of an ordinary request: made on the web pages, on a Wednesday at noon, for one host, by
    somebody who has had it done before, outside of freezes.

    weekday: 0 is Monday; with the hour, where the host stands.
    """

    source: str = "web"
    weekday: int = _WEDNESDAY
    hour: int = _NOON
    hosts: int = 1
    is_first_success: bool = False
    is_frozen: bool = False

    @property
    def freezes(self) -> FreezeList:
        return _PERMANENT_FREEZE if self.is_frozen else FreezeList()

    def to_microseconds(self, week: datetime, zone: str) -> int:
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
    index: int
    description: str
    circumstances: Circumstances
    range_end: str = ""


def list_variations(mentions: Set[str]) -> list[Variation]:
    """Return what could matter to rules that look at these attributes and numbers."""
    found: list[Variation] = []
    if "source" in mentions:
        found += [
            Variation("source", n, f"it is asked for {words}", Circumstances(source=door))
            for n, (door, words) in enumerate(_SOURCE_LABELS.items())
        ]
    if "weekday" in mentions:
        found += [
            Variation("weekday", n, f"it is {day}", Circumstances(weekday=n))
            for n, day in enumerate(_WEEKDAY_NAMES)
        ]
    if "hour" in mentions:
        found += [_build_hour_variation(hour) for hour in range(24)]
    if "hosts" in mentions:
        found += _list_host_count_variations({int(word) for word in mentions if word.isdecimal()})
    if "novel" in mentions:
        words = "the asker has never had it succeed"
        found.append(Variation("novel", 0, words, Circumstances(is_first_success=True)))
    if "frozen" in mentions:
        found.append(Variation("frozen", 0, "a freeze holds", Circumstances(is_frozen=True)))
    return found


def _build_hour_variation(hour: int) -> Variation:
    end = f"{(hour + 1) % 24:02}:00"
    return Variation("hour", hour, f"it is from {hour:02}:00", Circumstances(hour=hour), end)


def _list_host_count_variations(numbers: Set[int]) -> list[Variation]:
    """Return requests for several hosts: as many as the rules speak of, and one more."""
    steps = {2} | {n + more for n in numbers for more in (0, 1) if 2 <= n + more <= _MAX_HOSTS}
    ordered = sorted(steps)
    return [
        Variation("hosts", place, f"it is for {low}", Circumstances(hosts=low), str(high - 1))
        for place, (low, high) in enumerate(pairwise([*ordered, _MAX_HOSTS]))
    ]


def describe_variations(variations: Sequence[Variation]) -> str:
    """Return in words what makes no difference among them: `it is from 18:00 to 06:00`."""
    runs: list[list[Variation]] = []
    for one in variations:
        if runs and one.index == runs[-1][-1].index + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    if (
        variations[0].kind == "hour"
        and len(runs) > 1
        and (variations[0].index, variations[-1].index) == (0, 23)
    ):
        # The night is one stretch, though the count begins anew at midnight.
        runs[0] = runs.pop() + runs[0]
    parts = [_describe_range(run) for run in runs]
    first, *rest = parts
    lead = _DESCRIPTION_PREFIXES[variations[0].kind]
    return " or ".join([first, *(part.removeprefix(lead) for part in rest)])


_DESCRIPTION_PREFIXES = {
    "source": "it is asked for ",
    "weekday": "it is ",
    "hour": "it is ",
    "hosts": "it is for ",
    "novel": "",
    "frozen": "",
}


def _describe_range(variations: Sequence[Variation]) -> str:
    first, last = variations[0], variations[-1]
    if first.kind == "hour":
        return f"{first.description} to {last.range_end}"
    if first.kind == "hosts":
        if last.range_end == str(_MAX_HOSTS - 1):
            return f"{first.description} hosts or more"
        low = first.circumstances.hosts
        return (
            f"{first.description} "
            f"{'hosts' if str(low) == last.range_end else f'to {last.range_end} hosts'}"
        )
    lead = _DESCRIPTION_PREFIXES[first.kind]
    return " or ".join(
        [first.description, *(one.description.removeprefix(lead) for one in variations[1:])]
    )


ORDINARY_CIRCUMSTANCES = Circumstances()


@dataclass(frozen=True)
class RequestKind:
    """What may be asked for. reversible: whether all of it can be taken back."""

    runbook: str
    kind: str
    reversible: bool = True


HostAndRequest = tuple[str, RequestKind]


class PolicyProbe:
    """Asks one policy, as it is under some circumstances in the week of *now*.

    hosts, people, deeds: those that stand for all, each with all that it stands for.
    """

    def __init__(
        self,
        policy: Policy,
        runbooks: Sequence[RunbookInfo],
        now: datetime,
        circumstances: Circumstances = ORDINARY_CIRCUMSTANCES,
    ) -> None:
        supposed = [_build_placeholder_host(area) for area in list_areas_without_hosts(policy)]
        self.policy = policy.with_hosts_and_freezes(supposed, circumstances.freezes)
        self.hosts = _group_alike(self.policy.host_likenesses)
        self.people = _group_alike(self.policy.group_alike_entities("Person"))
        self.requests = _group_requests(runbooks, by_runbook="runbook" in policy.mentions)
        self._circumstances, self._now = circumstances, now
        self._representatives = {
            one: like for like, people in self.people.items() for one in people
        }
        self._approvals: dict[tuple[str, HostAndRequest, Ruling], Ruling] = {}

    def build_request(self, person: str, place: HostAndRequest) -> PolicyRequest:
        host, deed = place
        known = self._circumstances
        return PolicyRequest(
            runbook=deed.runbook,
            kind=deed.kind,
            host=host,
            source=known.source,
            requested_by=person,
            reversible=deed.reversible,
            hosts=(host,) * known.hosts if known.hosts > 1 else (),
            now=known.to_microseconds(self._now, self.policy.inventory[host].zone),
            is_first_success=known.is_first_success,
        )

    def list_request_rulings(self, person: str) -> dict[HostAndRequest, Ruling]:
        """Return what is said to everything that one person could ask for."""
        places = [(host, deed) for host in self.hosts for deed in self.requests]
        return {
            place: self.policy.get_request_ruling(self.build_request(person, place))
            for place in places
        }

    def list_break_glass_rulings(self, person: str) -> dict[HostAndRequest, Ruling]:
        """Return what is said if that person wanted to do it through a freeze and alone."""
        places = [(host, deed) for host in self.hosts for deed in self.requests]
        changes = [place for place in places if place[1].kind == "change"]
        return {
            place: self.policy.get_break_glass_ruling(self.build_request(person, place))
            for place in changes
        }

    def list_view_rulings(self, person: str) -> dict[HostAndRequest, Ruling]:
        """Return what is said if that person wanted to view what others have done."""
        return {
            (host, deed): self.policy.get_view_ruling(
                person, self.build_request(person, (host, deed))
            )
            for host in self.hosts
            for deed in self.requests
        }

    def get_approval_ruling(self, person: str, place: HostAndRequest, ruling: Ruling) -> Ruling:
        """Return what is said to this person's approval of what somebody else asks for."""
        question = (self._representatives[person], place, ruling)
        if question not in self._approvals:
            request = self.build_request("", place)
            self._approvals[question] = self.policy.get_approval_ruling(person, request, ruling)
        return self._approvals[question]

    def list_approvers(self, place: HostAndRequest, ruling: Ruling) -> frozenset[str]:
        """Return everybody whose approval would count, if somebody else asked."""
        return frozenset(
            person
            for like, people in self.people.items()
            if self.get_approval_ruling(like, place, ruling).allowed
            for person in people
        )


def list_areas_without_hosts(policy: Policy) -> list[str]:
    """Return the areas that no host is in."""
    inhabited = {host.area for host in policy.inventory}
    return [area for area in policy.organisation.areas if area not in inhabited]


def _build_placeholder_host(area: str) -> Host:
    """Stand in for the hosts that an area will have."""
    return Host.model_construct(name=f"any host of {area}", area=area)


def _group_alike(likenesses: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return one of each kind, and all that are like it."""
    groups: dict[str, list[str]] = {}
    for name, likeness in likenesses.items():
        groups.setdefault(likeness, []).append(name)
    return {names[0]: tuple(names) for names in groups.values()}


def _group_requests(
    runbooks: Sequence[RunbookInfo], *, by_runbook: bool
) -> dict[RequestKind, tuple[RequestKind, ...]]:
    groups: dict[tuple[str, bool, str], list[RequestKind]] = {}
    for leaflet in runbooks:
        for reversible in _list_reversibilities(leaflet):
            deed = RequestKind(leaflet.name, leaflet.kind, reversible)
            groups.setdefault(
                (deed.kind, reversible, deed.runbook if by_runbook else ""), []
            ).append(deed)
    return {deeds[0]: tuple(deeds) for deeds in groups.values()}


def _list_reversibilities(runbook: RunbookInfo) -> Sequence[bool]:
    """Return whether it can be taken back; a plan of what usually can may hold what cannot."""
    if runbook.kind == "check":
        return (True,)
    return (True, False) if runbook.undo else (False,)
