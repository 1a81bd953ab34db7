"""An event of any kind with given texts in each of its facts."""

import dataclasses
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from bot.audit.event_type import Event


def build_event(event_type: type[Event], text: str = "ünïcode ☃", number: int = 7) -> Event:
    """Return an event whose facts all differ from their defaults."""
    fields = dataclasses.fields(cast("Any", event_type))
    return event_type(**{field.name: _build(field.type, text, number) for field in fields})


def _build(annotation: Any, text: str, number: int) -> Any:
    kind, inner = get_origin(annotation) or annotation, get_args(annotation)
    if kind in (Annotated, UnionType, Union):
        return _build(inner[0], text, number)
    if kind is tuple:
        return (_build(inner[0], text, number),) * 2
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if kind is str:
        return text
    if kind is bool:
        return True
    if kind is int:
        return number
    if kind is Any:
        return [text, {text: number}]
    # A mapping.
    return {_build(inner[0], text, number): _build(inner[1], text, number)}
