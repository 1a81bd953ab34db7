"""Signed entries that hold what no version of Keyturn writes, for tests."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, cast

from bot.audit import change_log, events
from bot.audit.event_type import Event, UnknownEvent
from bot.db.database import Transaction
from bot.model.times import LAST_TIME
from tests.events import build_event

_HUGE = 2**62


def _list_fact_names(event_type: type[Event]) -> list[str]:
    return [field.name for field in dataclasses.fields(cast("Any", event_type))]


# Each returns an event of a kind.
DAMAGES: Mapping[str, Callable[[type[Event]], Event]] = {
    "no facts": lambda kind: UnknownEvent(kind=kind.kind),
    "lists for facts": lambda kind: UnknownEvent(
        kind=kind.kind, facts={name: [{"x": None}] for name in _list_fact_names(kind)}
    ),
    "huge numbers": lambda kind: build_event(kind, "lb1", _HUGE),
    "last times": lambda kind: build_event(kind, "lb1", LAST_TIME),
    "negative numbers": lambda kind: build_event(kind, "", -_HUGE),
}


def add_damaged_entries(tx: Transaction, damage: str, *, run: int) -> None:
    """Append an entry of each kind, about a run and about none."""
    for number in (run, None):
        for event_type in events.EVENT_TYPES:
            event = DAMAGES[damage](event_type)
            change_log.append_entry(tx, event, run=number, person="olga", host="lb1")
