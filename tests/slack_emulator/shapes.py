"""Rules for JSON: each checks one value and says what is wrong, as Slack's validator does."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.slack_emulator.wire import Json, is_list, is_record, record

# A rule takes a value and the JSON pointer to it, and yields one message for each fault.
Rule = Callable[[object, str], Iterator[str]]


@dataclass(frozen=True)
class Needed:
    """Marks a field of a shape that must be there."""

    rule: Rule


Shape = Mapping[str, Rule | Needed]


def fault(words: str, pointer: str) -> str:
    return f"[ERROR] {words} [json-pointer:{pointer or '/'}]"


def string(most: int, least: int = 0) -> Rule:
    def check(value: object, pointer: str) -> Iterator[str]:
        if not isinstance(value, str):
            yield fault("must be a string", pointer)
        elif len(value) > most:
            yield fault(f"must be less than {most + 1} characters", pointer)
        elif len(value) < least:
            yield fault(f"must be more than {least - 1} characters", pointer)

    return check


def boolean(value: object, pointer: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield fault("must be a boolean", pointer)


def number(low: int, high: int) -> Rule:
    def check(value: object, pointer: str) -> Iterator[str]:
        if isinstance(value, bool) or not isinstance(value, int):
            yield fault("must be an integer", pointer)
        elif not low <= value <= high:
            yield fault(f"must be between {low} and {high}", pointer)

    return check


def anything(value: object, pointer: str) -> Iterator[str]:
    del value, pointer
    yield from ()


def one_of(*words: str) -> Rule:
    def check(value: object, pointer: str) -> Iterator[str]:
        if value not in words:
            yield fault(f"must be one of: {', '.join(words)}", pointer)

    return check


def listed(rule: Rule, most: int, least: int = 0) -> Rule:
    def check(value: object, pointer: str) -> Iterator[str]:
        if not is_list(value):
            yield fault("must be an array", pointer)
            return
        items = value
        if len(items) > most:
            yield fault(f"no more than {most} items allowed", pointer)
        if len(items) < least:
            yield fault(f"must have at least {least} items", pointer)
        for index, item in enumerate(items):
            yield from rule(item, f"{pointer}/{index}")

    return check


def shaped(shape: Shape) -> Rule:
    """Return the rule of an object that holds these fields and no others."""

    def check(value: object, pointer: str) -> Iterator[str]:
        if not is_record(value):
            yield fault("must be an object", pointer)
            return
        yield from _fields(value, shape, pointer)

    return check


def _fields(value: Json, shape: Shape, pointer: str) -> Iterator[str]:
    for name, slot in shape.items():
        if isinstance(slot, Needed) and value.get(name) is None:
            yield fault(f"missing required field: {name}", pointer)
    for name, inner in value.items():
        slot = shape.get(name)
        if slot is None:
            yield fault(f"invalid additional property: {name}", pointer)
        elif inner is not None:
            rule = slot.rule if isinstance(slot, Needed) else slot
            yield from rule(inner, f"{pointer}/{name}")


def typed(shapes: Mapping[str, Shape]) -> Rule:
    """Return the rule of an object whose `type` says which of the shapes it has."""

    def check(value: object, pointer: str) -> Iterator[str]:
        kind = record(value).get("type")
        shape = shapes.get(kind) if isinstance(kind, str) else None
        if shape is None:
            yield fault(f"unsupported type: {kind}", f"{pointer}/type")
            return
        yield from shaped({"type": Needed(anything), **shape})(value, pointer)

    return check


def both(first: Rule, second: Rule) -> Rule:
    def check(value: object, pointer: str) -> Iterator[str]:
        yield from first(value, pointer)
        yield from second(value, pointer)

    return check
