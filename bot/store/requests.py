"""Requests that are not recorded yet, and the row that each becomes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from bot.digest import canonical
from bot.run import Origin, State
from bot.store import tables
from bot.store.database import Transaction
from bot.store.tables import ALONE, PART, WHOLE
from bot.terms import Terms
from bot.timetable import Timing

_ORIGIN = TypeAdapter(Origin)
_TERMS = TypeAdapter(Terms).dump_json(Terms()).decode()
# The number is given by the database.
COLUMNS = tuple(column.name for column in tables.run.columns if column.name != "id")


@dataclass(frozen=True)
class NewRun:
    """A request that is not recorded yet."""

    words: str
    kind: str
    fields: Mapping[str, str]
    host: str
    area: str
    asked_by: str
    origin: Origin
    reason: str = ""
    undo_of: int | None = None
    request: str = ""
    parent: int | None = None
    hosts: Sequence[str] = ()
    editors: Sequence[str] = ()
    counters: int | None = None
    timing: Timing | None = None


@lru_cache(1024)
def _origin_text(origin: Origin) -> str:
    return _ORIGIN.dump_json(origin).decode()


def row_of(tx: Transaction, new: NewRun) -> dict[str, Any]:
    """Return the columns of a run that was just asked for."""
    return {
        **dict.fromkeys(COLUMNS),
        "version": 1,
        "state": State.ASKED.value,
        "words": new.words,
        "kind": new.kind,
        "fields": canonical(new.fields),
        "request": new.request,
        "host": new.host,
        "area": new.area,
        "asked_by": new.asked_by,
        "origin": _origin_text(new.origin),
        "reason": tx.redactor.text(new.reason),
        "asked": tx.now,
        "digest": "",
        "needed": 0,
        "groups": "[]",
        "says": "[]",
        "terms": _TERMS,
        "undo_of": new.undo_of,
        "parent": new.parent,
        "hosts": json.dumps([*new.hosts]) if new.hosts else "[]",
        "editors": json.dumps([*new.editors]) if new.editors else "[]",
        "counters": new.counters,
        "timing": new.timing.to_json() if new.timing else None,
        "summary": "",
        "unwell": False,
        "place": PART if new.parent is not None else WHOLE if new.hosts else ALONE,
    }
