"""HP MSA and P2000 storage arrays, by the XML API of their controllers. No I/O.

Names of commands and properties are those of the CLI reference guides; a command of several words
has "/" between them.
"""

from collections.abc import Iterator
from typing import Literal

from connectors.command import ApiCall, Query
from connectors.msa_xml import MsaObject, parse_objects
from connectors.rows import Rows

Part = Literal["system", "controllers", "disks", "volumes", "controller-statistics"]
# What needs nothing of a person. N/A is the health of a part that is not used.
_WELL = frozenset({"ok", "n/a", ""})


def query(part: Part) -> Query[Rows[MsaObject]]:
    return Query(ApiCall(f"/api/show/{part}"), parse_objects)


def query_events(newest: int) -> Query[Rows[MsaObject]]:
    return Query(ApiCall(f"/api/show/events/last/{newest}"), parse_objects)


def list_problems(name: str, part: MsaObject) -> Iterator[str]:
    """Yield what is wrong with a part, with the reason and the advice of the array."""
    health = part.get("health")
    if health.lower() in _WELL:
        return
    reason, advice = part.get("health-reason"), part.get("health-recommendation")
    yield f"{name}: {': '.join(filter(None, (health, reason.rstrip('.'))))}" + (
        f". The array recommends: {advice}" if advice else ""
    )
