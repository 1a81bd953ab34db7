"""Disk statistics from sysstat's `iostat`. No I/O.

Format: iostat(1). JSON since sysstat 11.5; the text of older versions is parsed by column heads.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from connectors.command import Hint, Query, QueryRunner, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each

_HINTS = (
    Hint(
        r"iostat.*(not found|No such file)|failed to run command .iostat",
        "iostat is missing: install sysstat on the host",
    ),
)
# KiB. Databases and directories have requests up to the first size; files that are read or
# written sequentially have requests from the second size on.
_RANDOM_UP_TO = 16.0
_SEQUENTIAL_FROM = 128.0
_BUSY = 90.0
# Milliseconds of a request on a disk that is not overloaded: a hard disk needs about 10.
_PATIENCE = 20.0


@dataclass(frozen=True)
class DiskUse:
    """The average use of one device."""

    device: str
    reads: float
    """Reads per second."""
    writes: float
    """Writes per second."""
    read_kib: float
    """KiB read per second."""
    written_kib: float
    """KiB written per second."""
    read_await: float
    """Milliseconds that a read took."""
    write_await: float
    """Milliseconds that a write took."""
    queue: float
    """Requests in progress."""
    busy: float
    """Percent of the time with at least one request in progress."""

    @property
    def request_rate(self) -> float:
        return self.reads + self.writes

    @property
    def request_kib(self) -> float:
        """The average size of a request; 0 where there was none."""
        return (self.read_kib + self.written_kib) / self.request_rate if self.request_rate else 0.0

    @property
    def average_wait(self) -> float:
        """Milliseconds that a request took on average."""
        taken = self.reads * self.read_await + self.writes * self.write_await
        return taken / self.request_rate if self.request_rate else 0.0

    @property
    def is_saturated(self) -> bool:
        """Whether the device is always busy and its requests wait for each other.

        Busy alone is no sign: a device that serves several requests in parallel may have room.
        """
        return self.busy >= _BUSY and (self.average_wait >= _PATIENCE or self.queue >= 8)

    @property
    def pattern(self) -> str:
        if self.request_kib <= _RANDOM_UP_TO:
            return "random"
        return "sequential" if self.request_kib >= _SEQUENTIAL_FROM else "mixed"

    @property
    def description(self) -> str:
        """What a sentence says of it."""
        return str(self)

    def __str__(self) -> str:
        if not self.request_rate:
            return f"{self.device} was idle"
        return (
            f"{self.device} was busy {self.busy:.0f} % of the time with {self.reads:.0f} reads "
            f"and {self.writes:.0f} writes a second of {self.request_kib:.0f} KiB, "
            f"{self.average_wait:.1f} ms each"
        )


def read_disk_use(run_query: QueryRunner, host: str, seconds: int) -> tuple[DiskUse, ...]:
    """Measure the disks for some seconds. Raises CommandError where sysstat is missing."""
    values = run_query(host, query_json(seconds))
    return run_query(host, query_text(seconds)) if values is None else values


def query_json(seconds: int) -> Query[tuple[DiskUse, ...] | None]:
    """Query in JSON; None means that this iostat has no JSON and printed its usage."""
    return Query(_make_command("-o", "JSON", seconds=seconds), parse_json, frozenset({0, 1}))


def query_text(seconds: int) -> Query[tuple[DiskUse, ...]]:
    return Query(_make_command("-k", seconds=seconds), parse_text)


def _make_command(*options: str, seconds: int) -> Shell:
    # One sample; -y omits the averages since boot.
    words = ("iostat", "-x", "-y", *options, str(seconds), "1")
    return Shell(words, hints=_HINTS, deadline=seconds + 30)


class _Disk(BaseModel):
    device: str = Field(alias="disk_device")
    reads: float = Field(alias="r/s")
    writes: float = Field(alias="w/s")
    read_kib: float = Field(alias="rkB/s")
    written_kib: float = Field(alias="wkB/s")
    read_await: float = Field(alias="r_await")
    write_await: float = Field(alias="w_await")
    queue: float = Field(alias="aqu-sz")
    busy: float = Field(alias="util")

    @property
    def disk_use(self) -> DiskUse:
        return DiskUse(**self.model_dump())


class _Statistics(BaseModel):
    disk: list[Any]


class _Host(BaseModel):
    statistics: list[_Statistics] = Field(min_length=1, max_length=1)


class _Hosts(BaseModel):
    hosts: list[_Host] = Field(min_length=1, max_length=1)


class _Answer(BaseModel):
    sysstat: _Hosts


def parse_json(answer: str) -> Rows[DiskUse] | None:
    if not answer.strip():
        return None
    try:
        (host,) = _Answer.model_validate_json(answer).sysstat.hosts
    except ValidationError as error:
        wrong = error.errors()[0]["msg"]
        raise ParseError(f"iostat printed {answer[:200]!r}: {wrong}") from None
    return parse_each(host.statistics[0].disk, lambda row: _Disk.model_validate(row).disk_use)


def parse_text(answer: str) -> Rows[DiskUse]:
    """Parse the last table by its column heads: the columns' order differs between versions."""
    tables = re.split(r"(?m)^Device:?\s", answer)
    if len(tables) < 2:
        raise ParseError(f"iostat printed {answer[:200]!r} without a table of devices")
    head, *rows = filter(None, tables[-1].splitlines())
    columns = head.split()
    return parse_each(rows, lambda row: _parse_row(columns, row.split()))


def _parse_row(columns: Sequence[str], row: Sequence[str]) -> DiskUse:
    values: Mapping[str, str] = dict(zip(columns, row[1:], strict=False))
    named = {
        "disk_device": row[0],
        "aqu-sz": values.get("aqu-sz", values.get("avgqu-sz")),
        "util": values.get("%util"),
        **{name: values.get(name) for name in ("r/s", "w/s", "rkB/s", "wkB/s")},
        **{name: values.get(name) for name in ("r_await", "w_await")},
    }
    try:
        return _Disk.model_validate(named).disk_use
    except ValidationError:
        raise ParseError("it is incomplete") from None
