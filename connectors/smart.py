"""Health of disks as `smartctl -j` reports it: ATA, NVMe and SAS. No I/O.

The format is that of smartmontools since 7.0; smartctl(8) has the bits of its exit status, which
say what is wrong with the disk too, so no status is an error of the command.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors.amounts import format_count
from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each
from connectors.sudo import SudoRule, WordPattern
from connectors.visible_text import quote_text

_HINTS = (Hint(r"Permission denied", "smartctl requires root: add the login's sudo rule"),)
# A disk that sleeps is not woken up. Only with the error log do SAS disks return their counters of
# errors.
_READ = ("-n", "standby", "-iHA", "-l", "error", "-j")
_ANY_STATUS = frozenset(range(256))
# Attributes whose raw value counts damaged sectors.
_SECTORS = {5: "reallocated", 197: "unreadable", 198: "uncorrectable"}
_NO_SMART = "it returns no SMART status"
# What smartctl says of a volume of a RAID controller, whose disks have other addresses.
_VOLUME = re.compile(r"controller, please try adding '-d ")


@dataclass(frozen=True)
class DiskAddress:
    """How smartctl reaches one disk, also behind a RAID controller."""

    name: str
    """Such as /dev/sda or /dev/bus/0."""
    type: str
    """Such as scsi, nvme or megaraid,4, as smartctl guesses it without opening the disk."""

    @property
    def is_behind_controller(self) -> bool:
        """Whether the type has the place of the disk, which the name does not have."""
        return "," in self.type and not self.type.startswith("nvme")

    def __str__(self) -> str:
        return f"{self.name} ({self.type})" if self.is_behind_controller else self.name


@dataclass(frozen=True)
class DiskHealth:
    """The health of one disk."""

    disk: DiskAddress
    model: str
    problems: Sequence[str] = ()
    """What is wrong with it, as clauses."""
    error: str = ""
    """Why its health is unknown; "" if it is known."""
    celsius: int | None = None
    is_volume: bool = False
    """Whether it is no disk but a volume of a RAID controller."""

    @property
    def state(self) -> str:
        return "unknown" if self.error else "failing" if self.problems else "healthy"


def query_disks() -> Query[Rows[DiskAddress]]:
    return Query(Shell(("smartctl", "--scan", "-j"), root=True, hints=_HINTS), parse_disks)


def query_health(disk: DiskAddress) -> Query[DiskHealth]:
    # Linux lists SATA disks as scsi, and with a type smartctl does not detect what a disk is. So
    # the type is passed back only where it has the place of the disk.
    way = ("-d", disk.type) if disk.is_behind_controller else ()
    shell = Shell(("smartctl", *_READ, *way, disk.name), root=True, hints=_HINTS, deadline=60)
    return Query(shell, lambda answer: parse_health(answer, disk), _ANY_STATUS)


def parse_disks(answer: str) -> Rows[DiskAddress]:
    devices: object = _parse_document(answer).get("devices", [])
    if not isinstance(devices, list):
        raise ParseError(f"smartctl --scan printed {answer[:200]!r} instead of a list of disks")
    return parse_each(cast("list[Any]", devices), _parse_disk)


def _parse_disk(device: Any) -> DiskAddress:
    name, kind = device["name"], device["type"]
    if not (isinstance(name, str) and name.startswith("/dev/") and isinstance(kind, str)):
        raise ParseError("it has no name of a disk")
    return DiskAddress(name, kind)


def parse_health(answer: str, disk: DiskAddress) -> DiskHealth:
    document = _parse_document(answer)
    model = str(document.get("model_name") or document.get("scsi_model_name") or "")
    passed = _get(document, "smart_status").get("passed")
    if not isinstance(passed, bool):
        texts = _list_messages(document)
        is_volume = any(_VOLUME.search(text) for text in texts)
        return DiskHealth(disk, model, error="; ".join(texts) or _NO_SMART, is_volume=is_volume)
    problems = list(_list_problems(document))
    if not passed:
        problems.insert(0, "it predicts its own failure")
    celsius = _get(document, "temperature").get("current")
    return DiskHealth(disk, model, problems, celsius=celsius if isinstance(celsius, int) else None)


def _list_messages(document: Mapping[str, Any]) -> Sequence[str]:
    return parse_each(
        _list_rows(_get(document, "smartctl").get("messages")), lambda row: str(row["string"])
    )


def _parse_document(answer: str) -> dict[str, Any]:
    try:
        document = json.loads(answer)
    except ValueError:
        document = None
    if not isinstance(document, dict) or "smartctl" not in document:
        raise ParseError(f"smartctl printed {answer[:200]!r} instead of JSON")
    return cast("dict[str, Any]", document)


def _get(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _list_rows(table: object) -> Sequence[Any]:
    return cast("list[Any]", table) if isinstance(table, list) else ()


def _list_problems(document: Mapping[str, Any]) -> Iterator[str]:
    if _get(document, "device").get("protocol") == "ATA":
        yield from _list_ata_problems(document)
    yield from _list_nvme_problems(document)
    yield from _list_scsi_problems(document)


def _list_nvme_problems(document: Mapping[str, Any]) -> Iterator[str]:
    nvme = _get(document, "nvme_smart_health_information_log")
    if _get_number(nvme, "critical_warning"):
        yield f"it has the critical warning {_get_number(nvme, 'critical_warning'):#04x}"
    if _get_number(nvme, "media_errors"):
        yield f"{format_count(_get_number(nvme, 'media_errors'), 'error')} of its memory"
    if _get_number(nvme, "percentage_used") >= 100:
        yield f"{_get_number(nvme, 'percentage_used')} % of its lifetime is used"
    spare = _get_number(nvme, "available_spare", 100)
    if spare < _get_number(nvme, "available_spare_threshold"):
        yield f"only {spare} % of its spare blocks are left"


def _list_scsi_problems(document: Mapping[str, Any]) -> Iterator[str]:
    if _get_number(document, "scsi_grown_defect_list"):
        yield format_count(_get_number(document, "scsi_grown_defect_list"), "grown defect")
    if pending := _get_number(_get(document, "scsi_pending_defects"), "count"):
        yield format_count(pending, "unreadable sector")
    for way in _get(document, "scsi_error_counter_log"):
        counts = _get(_get(document, "scsi_error_counter_log"), way)
        if uncorrected := _get_number(counts, "total_uncorrected_errors"):
            yield f"{format_count(uncorrected, 'uncorrected error')} of {way}"


def _get_number(values: Mapping[str, Any], key: str, default: int = 0) -> int:
    value = values.get(key)
    return value if isinstance(value, int) else default


def _list_ata_problems(document: Mapping[str, Any]) -> Iterator[str]:
    rows = _list_rows(_get(document, "ata_smart_attributes").get("table"))
    if not rows:
        yield "its attributes could not be read"
    listed = parse_each(rows, _find_ata_problem)
    yield from filter(None, listed)
    for odd in listed.odd:
        yield f"its attribute {quote_text(odd.text)} is not understood"


def _find_ata_problem(row: Any) -> str:
    number, count = int(row["id"]), _get_raw_count(row["raw"])
    if number in _SECTORS and count:
        return format_count(count, f"{_SECTORS[number]} sector")
    return f"{row['name']} is below its threshold" if row.get("when_failed") == "now" else ""


def _get_raw_count(raw: Any) -> int:
    """Return the number that smartctl prints first: `0 (2000 0)` has others in the same bytes.

    https://github.com/smartmontools/smartmontools, atacmds.cpp, ata_format_attr_raw_value()
    """
    printed = re.fullmatch(r"(\d+) \(.+\)", str(raw.get("string", "")), re.ASCII)
    return int(printed[1] if printed else raw["value"])


_SMARTCTL = "/usr/sbin/smartctl"
_TYPE = WordPattern(r"[a-z][a-z0-9+]{1,20}(,[0-9]{1,3}(/[0-9]{1,3}){0,2}){1,3}")
_NAME = WordPattern(r"([a-z]{1,8}/)?[A-Za-z0-9]{1,20}", prefix="/dev/")
SUDO = (
    SudoRule(_SMARTCTL, "--scan", "-j", read_only=True, optional=True),
    SudoRule(_SMARTCTL, *_READ, _NAME, read_only=True, optional=True),
    SudoRule(_SMARTCTL, *_READ, "-d", _TYPE, _NAME, read_only=True, optional=True),
)
