"""Circumstances: what may be otherwise about a request, as far as the rules look at it. Pure."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from bot.policy.freezes import Freezes

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
class Otherwise:
    """One way in which a request is not ordinary. place: its place among those of its kind.

    words: of this one alone; until: how a run of them ends, for what can be counted.
    """

    kind: str
    place: int
    words: str
    circumstances: Circumstances
    until: str = ""


def otherwise(mentioned: Set[str]) -> list[Otherwise]:
    """Return what could matter to rules that look at these attributes and numbers."""
    found: list[Otherwise] = []
    if "door" in mentioned:
        found += [
            Otherwise("door", n, f"it is asked for {words}", Circumstances(door=door))
            for n, (door, words) in enumerate(_DOORS.items())
        ]
    if "weekday" in mentioned:
        found += [
            Otherwise("weekday", n, f"it is {day}", Circumstances(weekday=n))
            for n, day in enumerate(_DAYS)
        ]
    if "hour" in mentioned:
        found += [_hour(hour) for hour in range(24)]
    if "hosts" in mentioned:
        found += _hosts({int(word) for word in mentioned if word.isdecimal()})
    if "novel" in mentioned:
        words = "the asker has never had it succeed"
        found.append(Otherwise("novel", 0, words, Circumstances(novel=True)))
    if "frozen" in mentioned:
        found.append(Otherwise("frozen", 0, "a freeze holds", Circumstances(frozen=True)))
    return found


def _hour(hour: int) -> Otherwise:
    end = f"{(hour + 1) % 24:02}:00"
    return Otherwise("hour", hour, f"it is from {hour:02}:00", Circumstances(hour=hour), end)


def _hosts(numbers: Set[int]) -> list[Otherwise]:
    """Return requests for several hosts: as many as the rules speak of, and one more."""
    steps = {2} | {n + more for n in numbers for more in (0, 1) if 2 <= n + more <= _MOST_HOSTS}
    ordered = sorted(steps)
    return [
        Otherwise("hosts", place, f"it is for {low}", Circumstances(hosts=low), str(high - 1))
        for place, (low, high) in enumerate(pairwise([*ordered, _MOST_HOSTS]))
    ]


def told(alike: Sequence[Otherwise]) -> str:
    """Return in words what makes no difference among them: `it is from 18:00 to 06:00`."""
    runs: list[list[Otherwise]] = []
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


def _run(run: Sequence[Otherwise]) -> str:
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
