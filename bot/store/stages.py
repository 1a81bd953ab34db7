"""The stages of long work, each with somebody who is told how far it is."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from typing import TypeVar

# Rarely enough to cost nothing, and several times a second all the same.
_AT_ONCE = 5_000

# How many more were done.
Told = Callable[[int], None]
# Begins a stage by its name and how many there will be, who is asked only where it is shown.
Stages = Callable[[str, Callable[[], int]], AbstractContextManager[Told]]
T = TypeVar("T")


@contextmanager
def untold(_name: str, _total: Callable[[], int]) -> Generator[Told]:
    """Tell nobody how far it is."""
    yield nobody


def nobody(_more: int) -> None:
    """Be told, and do nothing of it."""


def counted(many: Iterable[T], told: Told) -> Iterator[T]:
    """Return them one by one, telling of every few thousand that were done."""
    return iter(many) if told is nobody else chain.from_iterable(_some(iter(many), told))


def _some(many: Iterator[T], told: Told) -> Generator[list[T]]:
    while some := [*islice(many, _AT_ONCE)]:
        yield some
        told(len(some))
