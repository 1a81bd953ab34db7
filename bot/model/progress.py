"""The stages of long work, each with somebody who is told how far it is."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from typing import TypeVar

# Rarely enough to cost nothing, and several times a second all the same.
_BATCH_SIZE = 5_000

# How many more were done.
ReportProgress = Callable[[int], None]
# Begins a stage by its name and how many there will be, who is asked only where it is shown.
BeginStage = Callable[[str, Callable[[], int]], AbstractContextManager[ReportProgress]]
T = TypeVar("T")


@contextmanager
def begin_silent_stage(_name: str, _total: Callable[[], int]) -> Generator[ReportProgress]:
    """Tell nobody how far it is."""
    yield ignore_progress


def ignore_progress(_more: int) -> None:
    """Be told, and do nothing of it."""


def iterate_with_progress(items: Iterable[T], report_progress: ReportProgress) -> Iterator[T]:
    """Return them one by one, telling of every few thousand that were done."""
    return (
        iter(items)
        if report_progress is ignore_progress
        else chain.from_iterable(_iterate_batches(iter(items), report_progress))
    )


def _iterate_batches(items: Iterator[T], report_progress: ReportProgress) -> Generator[list[T]]:
    while some := [*islice(items, _BATCH_SIZE)]:
        yield some
        report_progress(len(some))
