"""The stages of long work, each with somebody who is told how far it is."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from typing import TypeVar

# Rarely enough to cost nothing, and several times a second all the same.
_AT_ONCE = 5_000

# How many more were done.
ReportProgress = Callable[[int], None]
# Begins a stage by its name and how many there will be, who is asked only where it is shown.
Stages = Callable[[str, Callable[[], int]], AbstractContextManager[ReportProgress]]
T = TypeVar("T")


@contextmanager
def report_nothing(_name: str, _total: Callable[[], int]) -> Generator[ReportProgress]:
    """Tell nobody how far it is."""
    yield ignore_progress


def ignore_progress(_more: int) -> None:
    """Be told, and do nothing of it."""


def count_progress(many: Iterable[T], told: ReportProgress) -> Iterator[T]:
    """Return them one by one, telling of every few thousand that were done."""
    return iter(many) if told is ignore_progress else chain.from_iterable(_some(iter(many), told))


def _some(many: Iterator[T], told: ReportProgress) -> Generator[list[T]]:
    while some := [*islice(many, _AT_ONCE)]:
        yield some
        told(len(some))
