"""Freezes: periods in which changes wait. Pure.

A freeze is either one period or repeats every week. Its times are local times of its own zone.
When clocks go back and a time exists twice, a freeze begins at the first and ends at the second,
so the change of clocks never makes it shorter.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bot.model.host_patterns import is_meant_by_part
from bot.model.text import join_names
from bot.model.times import to_datetime
from bot.policy.people import Text
from connectors.inventory import Host, Name, Zone

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
HostPart = Annotated[str, Field(pattern=r"^@?[a-z0-9*?][a-z0-9._*?-]{0,62}$")]
WEEKDAYS: Sequence[Weekday] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Freeze(BaseModel):
    """A period in which the changes of some areas wait."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: Text
    areas: Sequence[Name] = ()
    """The names of areas; every area if omitted."""
    begin: datetime | time = Field(alias="from", union_mode="left_to_right")
    """`2026-12-20 18:00`, or `18:00` with days."""
    end: datetime | time = Field(alias="until", union_mode="left_to_right")
    days: Sequence[Weekday] = ()
    """The days of the week on which it begins."""
    zone: Zone = "UTC"
    hosts: Sequence[HostPart] = ()
    """Names of hosts, patterns and tags, such as `web*` or `@nginx`; every host if omitted."""
    but: Sequence[Text] = ()
    """The runbooks that still run, such as `abusers *`."""

    @model_validator(mode="after")
    def _check_times(self) -> "Freeze":
        for point in (self.begin, self.end):
            if point.tzinfo is not None:
                raise ValueError("from and until are in the zone of the freeze: remove the offset")
        if self.days:
            if isinstance(self.begin, datetime) or isinstance(self.end, datetime):
                raise ValueError('with days, from and until must be times of day such as "18:00"')
        elif not (isinstance(self.begin, datetime) and isinstance(self.end, datetime)):
            raise ValueError("add dates to from and until, or add days of the week")
        elif self.end <= self.begin:
            raise ValueError("until must be after from")
        return self

    def holds(self, host: Host, runbook: str) -> bool:
        """Return whether the freeze, while it is active, holds this runbook on this host."""
        return self.covers(host) and not self.exempts(runbook)

    def covers(self, host: Host) -> bool:
        """Return whether the freeze, while it is active, holds changes of this host."""
        return (not self.areas or host.area in self.areas) and (
            not self.hosts
            or any(is_meant_by_part(host.name, host.tags, one) for one in self.hosts)
        )

    def exempts(self, runbook: str) -> bool:
        return any(fnmatchcase(runbook, pattern) for pattern in self.but)

    def holds_any(self, hosts: Iterable[Host], runbook: str) -> bool:
        return any(self.holds(host, runbook) for host in hosts)

    def get_end_if_active(self, host: Host, *, runbook: str, now: datetime) -> datetime | None:
        """Return when the freeze ends if it holds this runbook on this host now, else None."""
        if not self.holds(host, runbook):
            return None
        return next((end for begin, end in self._iterate_periods(now) if begin <= now < end), None)

    def describe_place(self, titles: Mapping[str, str]) -> str:
        """Return what it holds: `changes of the edge, on web*`. titles: of the areas."""
        areas = join_names(titles[area] for area in self.areas)
        hosts = f", on {join_names(self.hosts)}" if self.hosts else ""
        return f"changes of {areas}{hosts}" if areas else f"all changes{hosts}"

    @property
    def recurrence(self) -> str:
        """When it repeats, in words: `every Friday from 18:00 until 08:00, Europe/Paris`."""
        if not self.days:
            return ""
        days = ", ".join(_WEEKDAY_NAMES[WEEKDAYS.index(day)] for day in self.days)
        return f"every {days} from {self.begin:%H:%M} until {self.end:%H:%M}, {self.zone}"

    def get_current_or_next_period(self, now: datetime) -> tuple[datetime, datetime] | None:
        """Return when the current or next period begins and ends, in UTC; None without one."""
        week = [now + timedelta(days=days) for days in range(8)]
        periods = [period for day in week for period in self._iterate_periods(day)]
        return min((period for period in periods if period[1] > now), default=None)

    def _iterate_periods(self, now: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield the periods, in UTC, that could contain *now*."""
        zone = ZoneInfo(self.zone)
        if isinstance(self.begin, datetime) and isinstance(self.end, datetime):
            yield _to_earliest_utc(self.begin, zone), _to_latest_utc(self.end, zone)
        elif isinstance(self.begin, time) and isinstance(self.end, time):
            today = now.astimezone(zone).date()
            for start in (today - timedelta(days=1), today):
                if WEEKDAYS[start.weekday()] in self.days:
                    yield self._build_period(start, self.begin, self.end, zone)

    @staticmethod
    def _build_period(
        start: date, begin: time, end: time, zone: ZoneInfo
    ) -> tuple[datetime, datetime]:
        # An end that is not after the beginning is on the next day.
        last_day = start if end > begin else start + timedelta(days=1)
        return (
            _to_earliest_utc(datetime.combine(start, begin), zone),
            _to_latest_utc(datetime.combine(last_day, end), zone),
        )


@dataclass(frozen=True)
class FreezeOrder:
    """Who ordered a freeze, and why."""

    number: int
    person: str
    reason: str


class OrderedFreeze(Freeze):
    """A freeze that a person ordered, and which is not in freezes.yaml. Its zone is UTC."""

    order: FreezeOrder


@dataclass(frozen=True)
class ActiveFreeze:
    """A freeze that holds a change now."""

    freeze: Freeze
    host: Host
    """A host that it holds."""
    ends_at: datetime


@dataclass(frozen=True)
class FreezePeriod:
    """The active or next period of a freeze, in UTC."""

    name: str
    where: str
    """What it holds: `changes of the edge`."""
    begins_at: datetime
    ends_at: datetime
    is_active: bool
    recurrence: str = ""
    exceptions: Sequence[str] = ()
    order: FreezeOrder | None = None
    """None if freezes.yaml has it."""

    @property
    def sentence(self) -> str:
        """What the freeze holds, when, and its exceptions."""
        repeats = f" Repeats {self.recurrence}." if self.recurrence else ""
        patterns = join_names(f"“{pattern}”" for pattern in self.exceptions)
        exempt = f" Exempt: {patterns}." if self.exceptions else ""
        verb = "holds" if self.is_active else "will hold"
        span = f"from {self.begins_at:%Y-%m-%d %H:%M} UTC until {self.ends_at:%Y-%m-%d %H:%M} UTC"
        return f"{verb} {self.where} {span}.{repeats}{exempt}"


class FreezeList(BaseModel):
    """All freezes of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    freezes: Sequence[Freeze] = ()

    def find_longest_active(
        self, hosts: Sequence[Host], *, runbook: str, now: int
    ) -> ActiveFreeze | None:
        """Return the freeze of any of these hosts that ends last. now: microseconds."""
        instant = to_datetime(now)
        active = [
            ActiveFreeze(freeze, host, end)
            for freeze in self.freezes
            for host in hosts
            if (end := freeze.get_end_if_active(host, runbook=runbook, now=instant))
        ]
        return max(active, key=lambda one: one.ends_at, default=None)

    def list_periods(self, now: datetime, titles: Mapping[str, str]) -> list[FreezePeriod]:
        """Return the active and upcoming periods, by their beginning. titles: of the areas."""
        found = [
            FreezePeriod(
                name=freeze.name,
                where=freeze.describe_place(titles),
                begins_at=period[0],
                ends_at=period[1],
                is_active=period[0] <= now,
                recurrence=freeze.recurrence,
                exceptions=freeze.but,
                order=freeze.order if isinstance(freeze, OrderedFreeze) else None,
            )
            for freeze in self.freezes
            if (period := freeze.get_current_or_next_period(now))
        ]
        return sorted(found, key=lambda one: one.begins_at)


def _to_earliest_utc(civil_time: datetime, zone: ZoneInfo) -> datetime:
    return civil_time.replace(tzinfo=zone, fold=0).astimezone(UTC)


def _to_latest_utc(civil_time: datetime, zone: ZoneInfo) -> datetime:
    return civil_time.replace(tzinfo=zone, fold=1).astimezone(UTC)
