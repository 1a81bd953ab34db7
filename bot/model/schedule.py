"""When a schedule fires, how it treats missed and overlapping times, and its states. Pure.

A cron expression has five fields (see crontab(5)), with names of months and days, `L` for the last
day of the month and `MON#1` for the first Monday. Clock changes are treated as by Debian's cron:
a skipped time fires once, right after the gap; a repeated time fires once. Times are microseconds
since 1970, UTC.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from itertools import islice, pairwise, takewhile
from typing import TypeVar
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import TypeAdapter

from bot.model.canonical import Canonical
from bot.model.errors import InvalidRequestError
from bot.model.text import format_count
from bot.model.times import HOUR, MINUTE, SECOND
from connectors.visible_text import quote_text

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


_Setting = TypeVar("_Setting", bound=StrEnum)


class ScheduleError(InvalidRequestError):
    """The timing is not valid. The message says what to write instead."""

    code = "invalid-syntax"


@dataclass(frozen=True)
class CronExpression:
    """A cron expression in a time zone. Create it with parse_cron(), which validates it."""

    cron: str
    zone: str

    @property
    def description(self) -> str:
        """The expression in words: At 03:00 on the first day of every month."""
        return f"{self._create_iterator(0).explain()} ({self.zone})"

    def iterate_due_times(self, microseconds: int) -> Iterator[int]:
        """Yield every due time after the given time."""
        # Cron has whole minutes, so the iterator can yield the start of the current minute.
        for local_time in self._create_iterator(microseconds):
            due = round(local_time.timestamp()) * SECOND
            if due > microseconds:
                yield due

    def list_due_times_between(self, begin: int, end: int) -> list[int]:
        """Return every due time after *begin* and before *end*, also of frequent expressions."""
        minutes = sorted(self._create_iterator(begin).minutes)
        minute, other_fields = self.cron.split(" ", 1)
        # One due time an hour is iterated, and the minutes of that hour are added. A field that
        # begins with * treats clock changes differently: `*/60` is minute 0 of such a field.
        first = "*/60" if minute.startswith("*") else str(minutes[0])
        hourly = CronExpression(f"{first} {other_fields}", self.zone).iterate_due_times(
            begin - HOUR
        )
        return [
            due
            for hour in takewhile(lambda at: at < end, hourly)
            for minute in minutes
            if begin < (due := hour + (minute - minutes[0]) * MINUTE) < end
        ]

    def list_due_times(self, microseconds: int, *, count: int = 1) -> list[int]:
        return list(islice(self.iterate_due_times(microseconds), count))

    def format_local_time(self, microseconds: int) -> str:
        """Return the local time with the weekday: Tue 1 Dec 2026 03:00 CET."""
        at = datetime.fromtimestamp(microseconds // SECOND, UTC).astimezone(ZoneInfo(self.zone))
        return f"{at:%a} {at.day} {at:%b %Y %H:%M %Z}"

    def format_due_times(self, microseconds: int, *, count: int = 5) -> list[str]:
        """Return the next due times in local time."""
        return [
            self.format_local_time(due) for due in self.list_due_times(microseconds, count=count)
        ]

    def compute_shortest_gap(self, microseconds: int) -> timedelta:
        """Return the shortest time between two of the next 500 due times."""
        fires = self.list_due_times(microseconds, count=_MAX_COMPARED_FIRES)
        gaps = [later - earlier for earlier, later in pairwise(fires)]
        return timedelta(microseconds=min(gaps)) if gaps else timedelta.max

    def _create_iterator(self, microseconds: int) -> CronSim:
        local = datetime.fromtimestamp(microseconds // SECOND, UTC).astimezone(ZoneInfo(self.zone))
        return CronSim(self.cron, local)


def parse_cron(cron: str, zone: str) -> CronExpression:
    """Parse a cron expression in a zone such as Europe/Amsterdam. Raises ScheduleError."""
    words = _CRON_MACROS.get(cron.strip().lower(), cron).upper().split()
    if len(words) != _FIELD_COUNT:
        raise ScheduleError(
            f"{quote_text(cron)} has {format_count(len(words), 'field')} instead of five: minute, "
            "hour, day of the month, month, weekday, such as '0 3 1 * *'; or write @hourly, "
            "@daily, @weekly or @monthly"
        )
    if zone not in list_time_zones():
        raise ScheduleError(
            f"unknown time zone {quote_text(zone)}: use one such as Europe/Amsterdam"
        )
    expression = CronExpression(" ".join(words), zone)
    try:
        CronSim(expression.cron, datetime.now(UTC))
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        raise ScheduleError(f"{quote_text(cron)}: the {field} is not valid") from None
    if not expression.list_due_times(0):
        raise ScheduleError(f"{quote_text(cron)} never fires")
    return expression


@cache
def list_time_zones() -> frozenset[str]:
    """Return the names of all time zones."""
    return frozenset(available_timezones())


class Overlap(StrEnum):
    """What happens at a due time while the last run is active."""

    SKIP = "skip"  # skip this due time
    QUEUE = "queue"  # wait until the last run ends
    CANCEL = "cancel"  # end the last run first


class ScheduleState(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"  # by a person, or because its owner may no longer request the run
    LAPSED = "lapsed"  # its approval has expired
    ENDED = "ended"


class FireOutcome(StrEnum):
    FIRED = "fired"  # a run was requested
    LATER = "later"  # decided, and starts at its own time
    SKIPPED = "skipped"  # the last run had not ended, or a freeze was active
    MISSED = "missed"  # no process of Keyturn was running at the due time
    REFUSED = "refused"  # its owner may not request it, or it differs from what was approved


class NotifyWhen(StrEnum):
    """When results are posted in the channel."""

    CHANGES = "changes"  # when the result differs from the last one
    ALWAYS = "always"


@dataclass(frozen=True)
class ScheduleTiming:
    """The timing of a schedule, which is part of what is approved."""

    name: str
    cron_expression: CronExpression
    overlap: Overlap = Overlap.SKIP
    catch_up: int = 0
    """The maximum number of missed due times that are run later; 0 skips them."""
    spread_minutes: int = 0
    """Minutes over which the starts of the hosts are spread; 0 starts all immediately."""
    notify_when: NotifyWhen = NotifyWhen.CHANGES
    channel: str = ""
    """Where results are posted; "" for the default channel."""
    replaces_schedule: int = 0
    """The schedule that ends when this one starts; 0 for none."""

    @property
    def document(self) -> Mapping[str, Canonical]:
        """The content that is approved."""
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
        """The timing in one or two sentences."""
        missed = {0: "skipped", 1: "run once"}.get(
            self.catch_up, f"run later, at most {self.catch_up} of them"
        )
        overlap = {
            Overlap.SKIP: "a due time is skipped while the last run is active",
            Overlap.QUEUE: "a due time waits until the last run ends",
            Overlap.CANCEL: "a due time ends the last run if it is still active",
        }[self.overlap]
        spread = (
            f" The starts of the hosts are spread over {self.spread_minutes} minutes."
            if self.spread_minutes
            else ""
        )
        cron = self.cron_expression.description
        return f"{cron}; missed due times are {missed}; {overlap}.{spread}"

    def to_json(self) -> str:
        return _TIMING_ADAPTER.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "ScheduleTiming":
        return _TIMING_ADAPTER.validate_json(text)


_TIMING_ADAPTER = TypeAdapter(ScheduleTiming)
_MAX_NAME_LENGTH = 60
_MAX_CATCH_UP = 1000
_MAX_SPREAD_MINUTES = 24 * 60
# The settings of a timing, as typed.
SETTING_HINTS: Mapping[str, str] = {
    "cron": 'the due times, such as "0 3 1 * *" or @daily',
    "zone": "the time zone, such as Europe/Amsterdam",
    "overlap": "while the last run is active: skip, queue or cancel",
    "catch-up": "missed due times: skip, once, or the maximum number",
    "spread": "minutes over which the starts of the hosts are spread",
    "notify": "when to post the result: changes or always",
}


def parse_timing(
    name: str, settings: Mapping[str, str], *, zone: str, channel: str = ""
) -> ScheduleTiming:
    """Parse the settings of a timing. zone: used if none is set. Raises ScheduleError."""
    problems = find_timing_problems(name, settings, zone=zone)
    if problems:
        raise ScheduleError("; ".join(problems.values()))
    return ScheduleTiming(
        name=name.strip(),
        cron_expression=parse_cron(settings["cron"], settings.get("zone") or zone),
        overlap=_parse_choice(Overlap, "overlap", settings.get("overlap") or "skip"),
        catch_up=_parse_catch_up(settings.get("catch-up") or "skip"),
        spread_minutes=_parse_number("spread", settings.get("spread") or "0", _MAX_SPREAD_MINUTES),
        notify_when=_parse_choice(NotifyWhen, "notify", settings.get("notify") or "changes"),
        channel=channel,
    )


def find_timing_problems(name: str, settings: Mapping[str, str], *, zone: str) -> dict[str, str]:
    """Return what is wrong with a timing, by setting, and with its `name`."""
    problems: dict[str, str] = {}
    if not name.strip() or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        problems["name"] = f"give the schedule a name of at most {_MAX_NAME_LENGTH} characters"
    for unknown in settings.keys() - SETTING_HINTS:
        listed = ", ".join(SETTING_HINTS)
        problems[unknown] = f"unknown setting {quote_text(unknown)}: use one of {listed}"
    if "cron" not in settings:
        problems["cron"] = f"cron is missing: type cron=… with {SETTING_HINTS['cron']}"
    parsers: Mapping[str, Callable[[str], object]] = {
        "cron": lambda word: parse_cron(word, "UTC"),
        "zone": lambda word: parse_cron("@daily", word),
        "overlap": lambda word: _parse_choice(Overlap, "overlap", word),
        "catch-up": _parse_catch_up,
        "spread": lambda word: _parse_number("spread", word, _MAX_SPREAD_MINUTES),
        "notify": lambda word: _parse_choice(NotifyWhen, "notify", word),
    }
    for setting, word in {"zone": zone, **settings}.items():
        try:
            parsers.get(setting, str)(word)
        except ScheduleError as error:
            problems[setting] = str(error)
    return problems


def _parse_catch_up(word: str) -> int:
    known = {"skip": 0, "once": 1}
    return known[word] if word in known else _parse_number("catch-up", word, _MAX_CATCH_UP)


def _parse_number(setting: str, word: str, maximum: int) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 6 and int(word) <= maximum):
        raise ScheduleError(f"{setting}={word}: {SETTING_HINTS[setting]}, at most {maximum}")
    return int(word)


def _parse_choice(choices: type[_Setting], setting: str, word: str) -> _Setting:
    try:
        return choices(word.lower())
    except ValueError:
        raise ScheduleError(f"{setting}={word}: {SETTING_HINTS[setting]}") from None
