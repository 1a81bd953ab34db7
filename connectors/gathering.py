"""The gathering: commands under way on many hosts, which one thread sees to.

A thread for each takes twice the work: most of it goes into waking one for another. No I/O.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Generator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

from connectors.command import Answer
from connectors.trouble import HostTrouble

# What is under way is looked at so often, in seconds, though nothing came.
_LOOK_SECONDS = 1.0

Bell = Callable[[], None]


class Begun(Protocol):
    """A command that was begun, until it is closed. Any one thread's.

    look: return the answer, or a number while there is none; None if nothing was sent, and it is
    to be run as others are. Raises HostTrouble as running it does.
    """

    def look(self) -> Answer | float | None: ...

    def close(self) -> None: ...


def gathered(
    begin: Callable[[int, Bell], Begun | None], count: int, *, at_once: int
) -> Generator[tuple[int, Answer | HostTrouble | None]]:
    """Begin so many, so many at once, and yield the number of each with its end, as that comes.

    begin: begins one by its number; its bell is rung when it is worth a look. None in place of an
    end where one could not be begun, or is to be begun anew.
    """
    bell = SimpleQueue[int]()
    waiting = deque(range(count))
    begun: dict[int, Begun] = {}
    look_by = time.monotonic() + _LOOK_SECONDS
    try:
        while waiting or begun:
            while waiting and len(begun) < at_once:
                number = waiting.popleft()
                one = begin(number, partial(bell.put, number))
                if one is None:
                    yield number, None
                else:
                    begun[number] = one
            rung: Collection[int] = _rung(bell, look_by) if begun else ()
            if time.monotonic() >= look_by:
                rung, look_by = (*begun,), time.monotonic() + _LOOK_SECONDS
            for number in rung:
                # It may have rung once more before its end was seen.
                end = _end(begun[number]) if number in begun else 0.0
                if not isinstance(end, float | int):
                    begun.pop(number).close()
                    yield number, end
    finally:
        for one in begun.values():
            one.close()


def _rung(bell: SimpleQueue[int], by: float) -> set[int]:
    """Wait for one that rings, until then at most; return it and all that rang besides."""
    rung: set[int] = set()
    try:
        rung.add(bell.get(timeout=max(0.0, by - time.monotonic())))
        while True:
            rung.add(bell.get_nowait())
    except Empty:
        return rung


def _end(begun: Begun) -> Answer | HostTrouble | float | None:
    try:
        return begun.look()
    except HostTrouble as trouble:
        return trouble
