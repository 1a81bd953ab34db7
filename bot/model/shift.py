"""Shifts of people on duty, and their JSON. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Shift:
    """An event of a calendar. Times are microseconds since 1970, UTC."""

    starts_at: int
    ends_at: int
    addresses: Sequence[str]
    """The e-mail addresses of the people on duty, in lower case."""
    title: str
    """Its summary, on one line."""


def encode_shifts(shifts: Sequence[Shift]) -> str:
    return json.dumps([asdict(shift) for shift in shifts], ensure_ascii=False)


def decode_shifts(text: str | bytes) -> Sequence[Shift]:
    return [
        Shift(one["starts_at"], one["ends_at"], tuple(one["addresses"]), one["title"])
        for one in json.loads(text)
    ]
