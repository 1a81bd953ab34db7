"""A host's clock, with fractions of a second where its date program prints them. No I/O."""

import re
from datetime import UTC, datetime

from connectors.command import Query, Shell
from connectors.errors import ParseError


def query_clock() -> Query[datetime]:
    """Query the host's clock."""
    return Query(Shell(("date", "+%s.%N")), parse_clock)


def parse_clock(answer: str) -> datetime:
    # A date program without fractions prints "%N" or "N" instead.
    match = re.fullmatch(r"(\d{1,11})(?:\.(\d{6})\d{3}|\.?%?N)?\n?", answer, re.ASCII)
    if match is None:
        raise ParseError(f"date printed {answer[:80]!r} instead of seconds")
    time = datetime.fromtimestamp(int(match[1]), UTC)
    return time.replace(microsecond=int(match[2] or 0))
