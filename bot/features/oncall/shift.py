"""Shifts of people on duty, and their JSON. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class Shift:
    """An event of a calendar. Times are microseconds since 1970, UTC."""

    starts_at: int
    ends_at: int
    addresses: Sequence[str]
    """The e-mail addresses of the people on duty, in lower case."""
    title: str
    """Its summary, on one line."""
    problem: str = ""
    """Why it is not understood: then it names no one, and its times are only limits."""


def encode_shifts(shifts: Sequence[Shift]) -> str:
    return json.dumps([asdict(shift) for shift in shifts], ensure_ascii=False)


def decode_shifts(text: str | bytes) -> Sequence[Shift]:
    shifts = [Shift(**one) for one in json.loads(text)]
    return [replace(one, addresses=tuple(one.addresses)) for one in shifts]
