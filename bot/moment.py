"""Moments: times and spans as people and programs read them. Pure.

Times are microseconds since 1970, UTC.
"""

from bot.civil import instant

_SECOND = 1_000_000


def iso(at: int) -> str:
    """Return a moment for programs, exactly and as the API does: `2026-03-01T14:30:05.000001Z`."""
    return f"{instant(at).replace(tzinfo=None).isoformat()}Z"


def utc(at: int) -> str:
    """Return `2026-03-01 14:30:05 UTC`."""
    return f"{instant(at).isoformat(' ', 'seconds')[:19]} UTC"


def span(length: int) -> str:
    """Return how long that is in two units at most: `4 min 10 s`. length: microseconds."""
    seconds = max(length, 0) / _SECOND
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, name, below, small in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {name} {rest} {small}" if rest else f"{whole // size} {name}"
    return f"{whole} s"
