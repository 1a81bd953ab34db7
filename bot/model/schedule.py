"""When a schedule fires, and what it does when it could not. Pure: it is told what time it is.

The cron expression is the usual one with five fields (see crontab(5)), with names of months and
days, `L` for the last day of the month and `MON#1` for the first Monday. Civil time is Debian's
cron: a time that does not exist on a day fires once, right after the gap; one that exists twice
fires once. Times are microseconds since 1970, UTC.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from itertools import islice, pairwise
from typing import TypeVar
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import TypeAdapter

from bot.model.canonical import Canonical
from connectors.command import quote_text

_CRON_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELD_COUNT = 5
_MAX_COMPARED_FIRES = 500
_SECOND = 1_000_000


_Setting = TypeVar("_Setting", bound=StrEnum)


class ScheduleError(Exception):
    """It does not say when. The message says what to write instead."""


@dataclass(frozen=True)
class CronExpression:
    """A cron expression in a time zone. Make it with timetable(), which checks it."""

    cron: str
    zone: str

    @property
    def description(self) -> str:
        """The expression as a person would say it: At 03:00 on the first day of every month."""
        return f"{self._create_iterator(0).explain()} ({self.zone})"

    def iterate_due_times(self, microseconds: int) -> Iterator[int]:
        """Yield every time that it fires after *instant*, which itself is left out."""
        # Cron knows whole minutes: what is left of a started one is over.
        for moment in self._create_iterator(microseconds):
            due = round(moment.timestamp()) * _SECOND
            if due > microseconds:
                yield due

    def list_due_times(self, microseconds: int, *, count: int = 1) -> list[int]:
        return list(islice(self.iterate_due_times(microseconds), count))

    def format_local_time(self, microseconds: int) -> str:
        """Return a moment in local time, with the weekday: Tue 1 Dec 2026 03:00 CET."""
        at = datetime.fromtimestamp(microseconds // _SECOND, UTC).astimezone(ZoneInfo(self.zone))
        return f"{at:%a} {at.day} {at:%b %Y %H:%M %Z}"

    def format_due_times(self, microseconds: int, *, count: int = 5) -> list[str]:
        """Return the next moments in local time."""
        return [
            self.format_local_time(due) for due in self.list_due_times(microseconds, count=count)
        ]

    def compute_shortest_gap(self, microseconds: int) -> timedelta:
        """Return how close two fires come to each other, as far as the next 500 show."""
        fires = self.list_due_times(microseconds, count=_MAX_COMPARED_FIRES)
        gaps = [later - earlier for earlier, later in pairwise(fires)]
        return timedelta(microseconds=min(gaps)) if gaps else timedelta.max

    def _create_iterator(self, microseconds: int) -> CronSim:
        local = datetime.fromtimestamp(microseconds // _SECOND, UTC).astimezone(
            ZoneInfo(self.zone)
        )
        return CronSim(self.cron, local)


def parse_cron(cron: str, zone: str) -> CronExpression:
    """Return when *cron* fires in *zone*, such as Europe/Amsterdam. Raises BadTimetable."""
    words = _CRON_MACROS.get(cron.strip().lower(), cron).upper().split()
    if len(words) != _FIELD_COUNT:
        raise ScheduleError(
            f"{quote_text(cron)} has {len(words)} fields instead of five: minute, hour, day of "
            "the month, month, weekday, such as '0 3 1 * *'; or write @hourly, @daily, @weekly or "
            "@monthly"
        )
    if zone not in _list_time_zones():
        raise ScheduleError(
            f"there is no time zone {quote_text(zone)}: write one such as Europe/Amsterdam"
        )
    made = CronExpression(" ".join(words), zone)
    try:
        CronSim(made.cron, datetime.now(UTC))
    except CronSimError as problem:
        said = str(problem).removeprefix("Bad ")
        raise ScheduleError(f"{quote_text(cron)}: the {said} cannot be understood") from None
    if not made.list_due_times(0):
        raise ScheduleError(f"{quote_text(cron)} never comes")
    return made


@cache
def _list_time_zones() -> frozenset[str]:
    return frozenset(available_timezones())


class Overlap(StrEnum):
    """What happens when the last run is not over yet at the next fire."""

    SKIP = "skip"  # this time is left out
    QUEUE = "queue"  # it waits until the last one is over
    CANCEL = "cancel"  # the last one is ended first


class NotifyWhen(StrEnum):
    """When the result is told in the channel."""

    CHANGES = "changes"  # when it is not as it was last time
    ALWAYS = "always"


@dataclass(frozen=True)
class ScheduleTiming:
    """All that is decided about when: it is part of what is approved.

    catch_up: how many of the fires that were missed are made up for: none, one, or that many.
    spread: minutes over which the hosts are spread, each at a moment of its own; 0 is all at once.
    channel: where results are told; "" is the default one.
    replaces: the number of the schedule that ends when this one begins; 0 for none.
    """

    name: str
    cron_expression: CronExpression
    overlap: Overlap = Overlap.SKIP
    catch_up: int = 0
    spread_minutes: int = 0
    notify_when: NotifyWhen = NotifyWhen.CHANGES
    channel: str = ""
    replaces_schedule: int = 0

    @property
    def document(self) -> Canonical:
        """What an approval is an approval of."""
        return {
            "name": self.name,
            "cron": self.cron_expression.cron,
            "zone": self.cron_expression.zone,
            "overlap": self.overlap.value,
            "catch_up": self.catch_up,
            "spread": self.spread_minutes,
            "replaces": self.replaces_schedule,
        }

    @property
    def description(self) -> str:
        """Everything in one or two sentences."""
        missed = {0: "left out", 1: "made up for once"}.get(
            self.catch_up, f"made up for, {self.catch_up} at most"
        )
        last = {
            Overlap.SKIP: "a fire is left out while the last run is not over",
            Overlap.QUEUE: "a fire waits until the last run is over",
            Overlap.CANCEL: "a fire ends the last run if that is not over",
        }[self.overlap]
        spread = (
            f" Its hosts are spread over {self.spread_minutes} minutes."
            if self.spread_minutes
            else ""
        )
        return f"{self.cron_expression.description}; what was missed is {missed}; {last}.{spread}"

    def to_json(self) -> str:
        return _TIMING_ADAPTER.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "ScheduleTiming":
        return _TIMING_ADAPTER.validate_json(text)


_TIMING_ADAPTER = TypeAdapter(ScheduleTiming)
_MAX_NAME_LENGTH = 60
_MAX_CATCH_UP = 1000
_MAX_SPREAD_MINUTES = 24 * 60
# What may be said about when, in the words that are typed.
SETTING_HINTS: Mapping[str, str] = {
    "cron": 'when, such as "0 3 1 * *" or @daily',
    "zone": "the time zone, such as Europe/Amsterdam",
    "overlap": "while the last run is not over: skip, queue or cancel",
    "catch-up": "what was missed: skip, once, or how many at most",
    "spread": "minutes over which the hosts are spread",
    "tell": "the result: changes or always",
}


def parse_timing(
    name: str, settings: Mapping[str, str], *, zone: str, channel: str = ""
) -> ScheduleTiming:
    """Return what was typed about when. zone: where none is said. Raises BadTimetable."""
    if not name.strip() or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        raise ScheduleError(f"give the schedule a name of {_MAX_NAME_LENGTH} characters at most")
    stray = next((key for key in settings if key not in SETTING_HINTS), None)
    if stray is not None:
        raise ScheduleError(
            f"there is no {quote_text(stray)}; there is {', '.join(SETTING_HINTS)}"
        )
    if "cron" not in settings:
        raise ScheduleError(f"say {SETTING_HINTS['cron']}: cron=…")
    return ScheduleTiming(
        name=name.strip(),
        cron_expression=parse_cron(settings["cron"], settings.get("zone") or zone),
        overlap=_parse_choice(Overlap, "overlap", settings.get("overlap") or "skip"),
        catch_up=_parse_catch_up(settings.get("catch-up") or "skip"),
        spread_minutes=_parse_number("spread", settings.get("spread") or "0", _MAX_SPREAD_MINUTES),
        notify_when=_parse_choice(NotifyWhen, "tell", settings.get("tell") or "changes"),
        channel=channel,
    )


def _parse_catch_up(word: str) -> int:
    known = {"skip": 0, "once": 1}
    return known[word] if word in known else _parse_number("catch-up", word, _MAX_CATCH_UP)


def _parse_number(setting: str, word: str, maximum: int) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 6 and int(word) <= maximum):
        raise ScheduleError(f"{setting}={word}: {SETTING_HINTS[setting]}, {maximum} at most")
    return int(word)


def _parse_choice(choices: type[_Setting], setting: str, word: str) -> _Setting:
    try:
        return choices(word.lower())
    except ValueError:
        raise ScheduleError(f"{setting}={word}: {SETTING_HINTS[setting]}") from None
