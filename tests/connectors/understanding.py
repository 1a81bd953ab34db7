"""Whether a parser understands what a program printed."""

from collections.abc import Callable

from connectors.errors import HostError
from connectors.rows import list_odd_rows


def is_understood(parse: Callable[[], object]) -> bool:
    """Return whether parsing neither fails nor keeps an odd row."""
    try:
        return not [*list_odd_rows(parse())]
    except HostError:
        return False
