"""RAID controllers of Broadcom (Dell PERC, MegaRAID), by perccli or storcli. No I/O.

Both print the same JSON, with the abbreviated states of their reference manual: Optl, Dgrd …
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each
from connectors.sudo import SudoRule

_PROGRAM = Setting(
    "raid.program", "/opt/MegaRAID/perccli/perccli64", pattern=r"/[A-Za-z0-9_./-]{1,200}"
)
_HINTS = (Hint(r"root privileges|Permission", "it requires root: add the login's sudo rule"),)
_SHOW = ("/call", "show", "nolog", "J")
SOUND_ARRAYS = frozenset({"Optl"})
# In an array, a hot spare, unused, or given to the system as it is.
SOUND_DISKS = frozenset({"Onln", "DHS", "GHS", "UGood", "JBOD", "Cpybck"})
BROKEN_DISKS = frozenset({"Failed", "UBad", "Offln", "Msng"})


@dataclass(frozen=True)
class ControllerPart:
    """One array, disk or battery of a controller."""

    name: str
    """Such as c0/v0, c0/e252/s1 or c0/battery."""
    state: str
    """In the controller's own words."""
    kind: str
    """The level of an array, the model of a disk or of a battery."""
    size: str = ""


@dataclass(frozen=True)
class Controller:
    """One controller with what it manages."""

    name: str
    model: str
    arrays: Rows[ControllerPart]
    disks: Rows[ControllerPart]
    batteries: Rows[ControllerPart]
    """Batteries or capacitors of its cache; none if it has no cache to protect."""


def query_is_installed() -> Query[bool]:
    script = 'if [ -x "$1" ]; then echo yes; fi'
    shell = Shell(("sh", "-c", script, "keyturn", _PROGRAM))
    return Query(shell, lambda answer: answer == "yes\n")


def query_controllers() -> Query[Rows[Controller]]:
    """Query all controllers. Where there is none, the program exits with a failure."""
    shell = Shell((_PROGRAM, *_SHOW), root=True, hints=_HINTS, deadline=60)
    return Query(shell, parse_controllers, frozenset(range(256)))


def parse_controllers(answer: str) -> Rows[Controller]:
    try:
        listed = json.loads(answer)["Controllers"]
    except (ValueError, KeyError, TypeError):
        listed = None
    if not isinstance(listed, list):
        raise ParseError(f"the RAID program printed {answer[:200]!r} instead of JSON")
    found = parse_each(cast("list[Any]", listed), _parse_controller)
    parts = [part for each in found for part in (each.arrays, each.disks, each.batteries)]
    return Rows(found, [*found.odd, *(odd for part in parts for odd in part.odd)])


def _is_absent(status: Any) -> bool:
    if status["Status"] == "Success":
        return False
    description = str(status.get("Description", ""))
    if "No Controller found" in description:
        return True
    raise ParseError(f"the RAID program failed: {description[:200]}")


def _parse_controller(document: Any) -> Controller | None:
    status = document["Command Status"]
    if _is_absent(status):
        return None
    data, name = document["Response Data"], f"c{status['Controller']}"
    batteries = [row for kind in ("Cachevault_Info", "BBU_Info") for row in _list_rows(data, kind)]
    return Controller(
        name=name,
        model=str(data.get("Product Name", "")),
        arrays=parse_each(_list_rows(data, "VD LIST"), lambda row: _parse_array(name, row)),
        disks=parse_each(_list_rows(data, "PD LIST"), lambda row: _parse_disk(name, row)),
        batteries=parse_each(batteries, lambda row: _parse_battery(name, row)),
    )


def _list_rows(data: Any, key: str) -> Sequence[Any]:
    rows = data.get(key, [])
    if not isinstance(rows, list):
        raise ParseError(f"its {key} is no list")
    return cast("list[Any]", rows)


def _parse_array(controller: str, row: Any) -> ControllerPart:
    number = row["DG/VD"].partition("/")[2]
    return ControllerPart(
        f"{controller}/v{int(number)}", row["State"], row["TYPE"], row.get("Size", "")
    )


def _parse_disk(controller: str, row: Any) -> ControllerPart:
    name = "/".join((controller, *_name_place(row["EID:Slt"])))
    model = str(row.get("Model", "")).strip()
    return ControllerPart(name, row["State"], model, row.get("Size", ""))


def _parse_battery(controller: str, row: Any) -> ControllerPart:
    return ControllerPart(f"{controller}/battery", row["State"], str(row.get("Model", "")))


def _name_place(place: str) -> Sequence[str]:
    """Return enclosure and slot; a disk without an enclosure has a blank before the colon."""
    enclosure, _, slot = place.partition(":")
    return [*([f"e{enclosure}"] if enclosure.strip() else []), f"s{slot}"]


SUDO = (SudoRule(_PROGRAM, *_SHOW, read_only=True, optional=True),)
