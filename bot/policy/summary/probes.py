"""Evaluate a policy for every person, runbook and host. Pure.

People, runbooks and hosts that the rules treat alike are evaluated once.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from bot.model.runbook_info import RunbookInfo
from bot.model.times import SECOND
from bot.policy import Policy, PolicyRequest, Ruling
from bot.policy.freezes import FreezeList
from bot.policy.policy import NO_LIMIT
from connectors.inventory import Host

_SOURCE_LABELS = {
    "slack": "in chat",
    "api": "through the API",
    "cli": "on the command line",
    "mcp": "by an agent",
    "schedule": "by a schedule",
}
_MARGIN_LABELS = (
    "the change leaves no leg of a service",
    "the change leaves one leg of a service",
)
_WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEDNESDAY, _NOON = 2, 12
_MAX_HOSTS = 100
_PERMANENT_FREEZE = FreezeList.model_validate(
    {"freezes": [{"name": "always", "from": "2000-01-01 00:00", "until": "9000-01-01 00:00"}]}
)


@dataclass(frozen=True)
class Circumstances:
    """The circumstances of a request.

    By default it is made on the web pages, on a Wednesday at noon, for one host, outside
    freezes, by a person for whom the runbook has succeeded before. weekday: 0 is Monday. weekday
    and hour are in the time zone of the host.
    """

    source: str = "web"
    weekday: int = _WEDNESDAY
    hour: int = _NOON
    hosts: int = 1
    is_first_success: bool = False
    is_frozen: bool = False
    margin: int = NO_LIMIT
    overrides_guard: bool = False

    @property
    def freezes(self) -> FreezeList:
        return _PERMANENT_FREEZE if self.is_frozen else FreezeList()

    def to_microseconds(self, week: datetime, zone: str) -> int:
        """Return the time in that week, in microseconds since 1970."""
        day = week.date() + timedelta(days=self.weekday - week.weekday())
        local = datetime.combine(day, time(self.hour), ZoneInfo(zone))
        return round(local.timestamp()) * SECOND


@dataclass(frozen=True)
class Variation:
    """Circumstances that differ from the default in one way."""

    kind: str
    """The attribute that differs: `hour`."""
    index: int
    """The position among the variations of its kind."""
    description: str
    circumstances: Circumstances
    range_end: str = ""
    """The end of a range of variations, for hours and numbers of hosts."""


def list_variations(mentions: Set[str]) -> list[Variation]:
    """Return the variations that rules with these attributes and numbers can distinguish."""
    found: list[Variation] = []
    if "source" in mentions:
        found += [
            Variation("source", n, f"requested {words}", Circumstances(source=source))
            for n, (source, words) in enumerate(_SOURCE_LABELS.items())
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
    return found + _list_single_variations(mentions)


def _list_single_variations(mentions: Set[str]) -> list[Variation]:
    """Return the variations of attributes that are so or not."""
    found: list[Variation] = []
    if "first_time" in mentions:
        words = "the runbook has never succeeded for the requester"
        found.append(Variation("first_time", 0, words, Circumstances(is_first_success=True)))
    if "frozen" in mentions:
        found.append(Variation("frozen", 0, "a freeze is active", Circumstances(is_frozen=True)))
    if "margin" in mentions:
        found += [
            Variation("margin", margin, words, Circumstances(margin=margin))
            for margin, words in enumerate(_MARGIN_LABELS)
        ]
    if "override" in mentions:
        words = "the request overrides the redundancy guard"
        found.append(Variation("override", 0, words, Circumstances(overrides_guard=True)))
    return found


def _build_hour_variation(hour: int) -> Variation:
    end = f"{(hour + 1) % 24:02}:00"
    return Variation("hour", hour, f"the time is {hour:02}:00", Circumstances(hour=hour), end)


def _list_host_count_variations(numbers: Set[int]) -> list[Variation]:
    """Return variations for several hosts: each number in the rules, and one more."""
    steps = {2} | {n + more for n in numbers for more in (0, 1) if 2 <= n + more <= _MAX_HOSTS}
    ordered = sorted(steps)
    return [
        Variation(
            "hosts", place, f"the request is for {low}", Circumstances(hosts=low), str(high - 1)
        )
        for place, (low, high) in enumerate(pairwise([*ordered, _MAX_HOSTS]))
    ]


def describe_variations(variations: Sequence[Variation]) -> str:
    """Return variations with the same rulings in words: `the time is 18:00 to 06:00`."""
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
        # Hours before and after midnight are one range.
        runs[0] = runs.pop() + runs[0]
    parts = [_describe_range(run) for run in runs]
    first, *rest = parts
    lead = _DESCRIPTION_PREFIXES[variations[0].kind]
    return " or ".join([first, *(part.removeprefix(lead) for part in rest)])


_DESCRIPTION_PREFIXES = {
    "source": "requested ",
    "weekday": "it is ",
    "hour": "the time is ",
    "hosts": "the request is for ",
    "first_time": "",
    "frozen": "",
    "margin": "the change leaves ",
    "override": "",
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
    if first.kind == "margin" and len(variations) == len(_MARGIN_LABELS):
        return "the change leaves at most one leg of a service"
    lead = _DESCRIPTION_PREFIXES[first.kind]
    return " or ".join(
        [first.description, *(one.description.removeprefix(lead) for one in variations[1:])]
    )


ORDINARY_CIRCUMSTANCES = Circumstances()


@dataclass(frozen=True)
class RequestKind:
    """A kind of request."""

    runbook: str
    kind: str
    reversible: bool = True
    """Whether every step has an undo."""


HostAndRequest = tuple[str, RequestKind]


class PolicyProbe:
    """Evaluates one policy under some circumstances in the week of *now*.

    Attributes:
        hosts, people, requests: One representative of each group that the rules treat alike, with
            all members of the group.
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
        self.requests = _group_requests(runbooks, policy.rules.distinct_runbooks)
        self._circumstances, self._now = circumstances, now
        self._representatives = {
            one: like for like, people in self.people.items() for one in people
        }
        self._approvals: dict[tuple[str, HostAndRequest, Ruling], Ruling] = {}

    def build_request(self, person: str, place: HostAndRequest) -> PolicyRequest:
        host, request = place
        known = self._circumstances
        return PolicyRequest(
            runbook=request.runbook,
            kind=request.kind,
            host=host,
            source=known.source,
            requested_by=person,
            reversible=request.reversible,
            hosts=(host,) * known.hosts if known.hosts > 1 else (),
            now=known.to_microseconds(self._now, self.policy.inventory[host].zone),
            is_first_success=known.is_first_success,
            margin=known.margin,
            overrides_guard=known.overrides_guard,
        )

    def list_request_rulings(self, person: str) -> dict[HostAndRequest, Ruling]:
        """Return the rulings on every request of one person."""
        places = [(host, request) for host in self.hosts for request in self.requests]
        return {
            place: self.policy.get_request_ruling(self.build_request(person, place))
            for place in places
        }

    def list_break_glass_rulings(self, person: str) -> dict[HostAndRequest, Ruling]:
        """Return the break-glass rulings on every change for one person."""
        places = [(host, request) for host in self.hosts for request in self.requests]
        changes = [place for place in places if place[1].kind == "change"]
        return {
            place: self.policy.get_break_glass_ruling(self.build_request(person, place))
            for place in changes
        }

    def list_view_rulings(self, person: str) -> dict[HostAndRequest, Ruling]:
        """Return the rulings on one person's right to view runs of others."""
        return {
            (host, request): self.policy.get_view_ruling(
                person, self.build_request(person, (host, request))
            )
            for host in self.hosts
            for request in self.requests
        }

    def get_approval_ruling(self, person: str, place: HostAndRequest, ruling: Ruling) -> Ruling:
        """Return the ruling on one person's approval of another person's request."""
        cache_key = (self._representatives[person], place, ruling)
        if cache_key not in self._approvals:
            request = self.build_request("", place)
            self._approvals[cache_key] = self.policy.get_approval_ruling(person, request, ruling)
        return self._approvals[cache_key]

    def list_approvers(self, place: HostAndRequest, ruling: Ruling) -> frozenset[str]:
        """Return everyone who can approve another person's request."""
        return frozenset(
            person
            for like, people in self.people.items()
            if self.get_approval_ruling(like, place, ruling).allowed
            for person in people
        )


def list_areas_without_hosts(policy: Policy) -> list[str]:
    """Return the areas without hosts."""
    used = {host.area for host in policy.inventory}
    return [area for area in policy.organisation.areas if area not in used]


def _build_placeholder_host(area: str) -> Host:
    """Return a host that represents the future hosts of an area."""
    return Host.model_construct(name=f"any host of {area}", area=area)


def _group_alike(likenesses: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the first member of each group, with all members."""
    groups: dict[str, list[str]] = {}
    for name, likeness in likenesses.items():
        groups.setdefault(likeness, []).append(name)
    return {names[0]: tuple(names) for names in groups.values()}


def _group_requests(
    runbooks: Sequence[RunbookInfo], distinct: Set[str] | None
) -> dict[RequestKind, tuple[RequestKind, ...]]:
    groups: dict[tuple[str, bool, str], list[RequestKind]] = {}
    for runbook in runbooks:
        for reversible in _list_reversibilities(runbook):
            request = RequestKind(runbook.name, runbook.kind, reversible)
            own_name = runbook.name if distinct is None or runbook.name in distinct else ""
            groups.setdefault((request.kind, reversible, own_name), []).append(request)
    return {requests[0]: tuple(requests) for requests in groups.values()}


def _list_reversibilities(runbook: RunbookInfo) -> Sequence[bool]:
    """Return the possible values: a runbook with undo can still plan irreversible steps."""
    if runbook.kind == "check":
        return (True,)
    return (True, False) if runbook.undo else (False,)
