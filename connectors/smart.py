"""Health of disks as `smartctl -j` reports it: ATA, NVMe and SAS. No I/O.

The format is that of smartmontools since 7.0; smartctl(8) has the bits of its exit status, which
say what is wrong with the disk too, so no status is an error of the command.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.sudo import SudoRule, WordPattern

_HINTS = (Hint(r"Permission denied", "smartctl requires root: add the login's sudo rule"),)
# A disk that sleeps is not woken up.
_READ = ("-n", "standby", "-iHA", "-j", "-d")
_ANY_STATUS = frozenset(range(256))
# Attributes whose raw value counts damaged sectors.
_SECTORS = {5: "reallocated", 197: "unreadable", 198: "uncorrectable"}


@dataclass(frozen=True)
class DiskAddress:
    """How smartctl reaches one disk, also behind a RAID controller."""

    name: str
    """Such as /dev/sda or /dev/bus/0."""
    type: str
    """Such as sat, nvme or megaraid,4."""

    def __str__(self) -> str:
        return f"{self.name} ({self.type})" if "," in self.type else self.name


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

    @property
    def state(self) -> str:
        return "unknown" if self.error else "failing" if self.problems else "healthy"


def query_disks() -> Query[Sequence[DiskAddress]]:
    return Query(Shell(("smartctl", "--scan", "-j"), root=True, hints=_HINTS), parse_disks)


def query_health(disk: DiskAddress) -> Query[DiskHealth]:
    words = ("smartctl", *_READ, disk.type, disk.name)
    return Query(
        Shell(words, root=True, hints=_HINTS, deadline=60),
        lambda answer: parse_health(answer, disk),
        _ANY_STATUS,
    )


def parse_disks(answer: str) -> Sequence[DiskAddress]:
    devices = _parse_document(answer).get("devices", [])
    try:
        return [DiskAddress(str(each["name"]), str(each["type"])) for each in devices]
    except (KeyError, TypeError):
        raise ParseError(f"smartctl --scan printed an unknown device: {devices!r:.200}") from None


def parse_health(answer: str, disk: DiskAddress) -> DiskHealth:
    document = _parse_document(answer)
    model = str(document.get("model_name") or document.get("scsi_model_name") or "")
    passed = _get(document, "smart_status").get("passed")
    if passed is None:
        messages: object = _get(document, "smartctl").get("messages")
        texts = [str(each.get("string", "")) for each in _list_rows(messages)]
        return DiskHealth(disk, model, error="; ".join(texts) or "it has no SMART")
    problems = list(_list_problems(document))
    if not passed:
        problems.insert(0, "it predicts its own failure")
    celsius = _get(document, "temperature").get("current")
    return DiskHealth(disk, model, problems, celsius=celsius if isinstance(celsius, int) else None)


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


def _list_rows(table: object) -> Sequence[Mapping[str, Any]]:
    return cast("list[dict[str, Any]]", table) if isinstance(table, list) else ()


def _list_problems(document: Mapping[str, Any]) -> Iterator[str]:
    yield from _list_ata_problems(document)
    nvme = _get(document, "nvme_smart_health_information_log")
    if nvme.get("critical_warning"):
        yield f"it has the critical warning {nvme['critical_warning']:#04x}"
    if nvme.get("media_errors"):
        yield f"{nvme['media_errors']:,} errors of its memory"
    if nvme.get("percentage_used", 0) >= 100:
        yield f"{nvme['percentage_used']} % of its lifetime is used"
    if nvme.get("available_spare", 100) < nvme.get("available_spare_threshold", 0):
        yield f"only {nvme['available_spare']} % of its spare blocks are left"
    if document.get("scsi_grown_defect_list"):
        yield f"{document['scsi_grown_defect_list']:,} defects have grown"
    for way, counts in _get(document, "scsi_error_counter_log").items():
        if isinstance(counts, dict) and counts.get("total_uncorrected_errors"):
            yield f"{counts['total_uncorrected_errors']:,} errors of {way} were not corrected"


def _list_ata_problems(document: Mapping[str, Any]) -> Iterator[str]:
    for row in _list_rows(_get(document, "ata_smart_attributes").get("table")):
        raw = _get(row, "raw").get("value", 0)
        if row.get("id") in _SECTORS and raw:
            yield f"{raw:,} {_SECTORS[row['id']]} sectors"
        elif row.get("when_failed") == "now":
            yield f"{row.get('name')} is below its threshold"


_SMARTCTL = "/usr/sbin/smartctl"
_TYPE = WordPattern(r"[a-z][a-z0-9+]{1,20}(,[0-9]{1,3}(/[0-9]{1,3})?){0,2}")
_NAME = WordPattern(r"([a-z]{1,8}/)?[A-Za-z0-9]{1,20}", prefix="/dev/")
SUDO = (
    SudoRule(_SMARTCTL, "--scan", "-j", read_only=True),
    SudoRule(_SMARTCTL, *_READ, _TYPE, _NAME, read_only=True),
)
