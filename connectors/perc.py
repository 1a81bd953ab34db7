"""RAID controllers of Broadcom (Dell PERC, MegaRAID), by perccli or storcli. No I/O.

Both print the same JSON, with the abbreviated states of their reference manual: Optl, Dgrd …
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.sudo import SudoRule

_PROGRAM = Setting(
    "raid.program", "/opt/MegaRAID/perccli/perccli64", pattern=r"/[A-Za-z0-9_./-]{1,200}"
)
_HINTS = (Hint(r"root privileges|Permission", "it requires root: add the login's sudo rule"),)
_SHOW = ("/call", "show", "nolog", "J")
SOUND_ARRAYS = frozenset({"Optl"})
# In an array, a hot spare, unused, or given to the system as it is.
SOUND_DISKS = frozenset({"Onln", "DHS", "GHS", "UGood", "JBOD", "Cpybck"})


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
    arrays: Sequence[ControllerPart]
    disks: Sequence[ControllerPart]
    batteries: Sequence[ControllerPart]
    """Batteries or capacitors of its cache; none if it has no cache to protect."""


def query_is_installed() -> Query[bool]:
    script = 'if [ -x "$1" ]; then echo yes; fi'
    shell = Shell(("sh", "-c", script, "keyturn", _PROGRAM))
    return Query(shell, lambda answer: answer == "yes\n")


def query_controllers() -> Query[Sequence[Controller]]:
    """Query all controllers. Where there is none, the program exits with a failure."""
    shell = Shell((_PROGRAM, *_SHOW), root=True, hints=_HINTS, deadline=60)
    return Query(shell, parse_controllers, frozenset(range(256)))


def parse_controllers(answer: str) -> Sequence[Controller]:
    try:
        found = cast("list[dict[str, Any]]", json.loads(answer)["Controllers"])
        return [_parse_controller(each) for each in found if not _is_absent(each)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ParseError(f"the RAID program printed {answer[:200]!r} instead of JSON") from None


def _is_absent(document: dict[str, Any]) -> bool:
    status = document["Command Status"]
    if status["Status"] == "Success":
        return False
    description = str(status.get("Description", ""))
    if "No Controller found" in description:
        return True
    raise ParseError(f"the RAID program failed: {description[:200]}")


def _parse_controller(document: dict[str, Any]) -> Controller:
    data = document["Response Data"]
    name = f"c{document['Command Status']['Controller']}"
    return Controller(
        name=name,
        model=str(data.get("Product Name", "")),
        arrays=[
            ControllerPart(
                f"{name}/v{each['DG/VD'].partition('/')[2]}",
                *(each["State"], each["TYPE"], each.get("Size", "")),
            )
            for each in data.get("VD LIST", ())
        ],
        disks=[
            ControllerPart(
                "/".join((name, *_name_place(each["EID:Slt"]))),
                *(each["State"], str(each.get("Model", "")).strip(), each.get("Size", "")),
            )
            for each in data.get("PD LIST", ())
        ],
        batteries=[
            ControllerPart(f"{name}/battery", each["State"], str(each.get("Model", "")))
            for kind in ("Cachevault_Info", "BBU_Info")
            for each in data.get(kind, ())
        ],
    )


def _name_place(place: str) -> Sequence[str]:
    """Return enclosure and slot; a disk without an enclosure has a blank before the colon."""
    enclosure, _, slot = place.partition(":")
    return [*([f"e{enclosure}"] if enclosure.strip() else []), f"s{slot}"]


SUDO = (SudoRule(_PROGRAM, *_SHOW, read_only=True),)
