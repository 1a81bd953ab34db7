"""Clearance: the last word before a packet that changes something, asked of whoever sends it.

Between deciding and sending lie a connection, a login and a turn among others: seconds, or hours
where the machine was put to sleep meanwhile. Whoever sends says, for the thread that does it, who
is asked right before the command leaves us. No I/O.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("clearance", default=None)


@contextmanager
def cleared_by(check: Callable[[], None]) -> Generator[None]:
    """Ask *check* before each command of this thread within the block; it raises HostTrouble."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def ask() -> None:
    """Raise HostTrouble if nothing may be sent any more."""
    check = _CHECK.get()
    if check is not None:
        check()
