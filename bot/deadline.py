"""Deadlines: when something is to end, as people type it. Pure.

Times are microseconds since 1970, UTC.
"""

import re

from bot.civil import SPAN, NotATime, civil, instant, length

_SPAN = re.compile(SPAN, re.ASCII | re.I)
EXAMPLES = "18:00, tomorrow 18:00, 2026-03-01 14:30 Europe/Paris, or 4 hours"


def deadline(text: str, *, now: int, zone: str = "UTC") -> int:
    """Return the moment that was typed. A day alone means its end, and an hour alone is today's.

    zone: the one in which it is meant where none is typed. Raises NotATime, also of what is past.
    """
    at = _typed(" ".join(text.split()), now, zone)
    if at <= now:
        raise NotATime(f"{written(at)} has passed already")
    return at


def written(at: int) -> str:
    """Return `2026-03-01 14:30 UTC`."""
    return f"{instant(at):%Y-%m-%d %H:%M} UTC"


def _typed(typed: str, now: int, zone: str) -> int:
    span = _SPAN.fullmatch(typed)
    try:
        if span:
            return now + length(span[1], span[2])
        found = civil(typed, now=now, zone=zone)
        if found is not None:
            first, last = found.on(found.day or found.today)
            return last + 1 if found.hour is None else first
    except OverflowError:
        pass
    raise NotATime(f"“{typed[:40]}” is no time: type {EXAMPLES}")
