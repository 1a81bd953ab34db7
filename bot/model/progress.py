"""Report the progress of long work in stages."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from typing import TypeVar

# Large enough to cost nothing, small enough for several reports a second.
_BATCH_SIZE = 5_000

# Called with the number of further items that are complete.
ReportProgress = Callable[[int], None]
# Begins a stage with its name and a function that counts its items, called only if it is shown.
BeginStage = Callable[[str, Callable[[], int]], AbstractContextManager[ReportProgress]]
T = TypeVar("T")


@contextmanager
def begin_silent_stage(_name: str, _total: Callable[[], int]) -> Generator[ReportProgress]:
    """Begin a stage that reports no progress."""
    yield ignore_progress


def ignore_progress(_more: int) -> None:
    """Ignore a progress report."""


def iterate_with_progress(items: Iterable[T], report_progress: ReportProgress) -> Iterator[T]:
    """Return an iterator over the items that reports progress every few thousand."""
    return (
        iter(items)
        if report_progress is ignore_progress
        else chain.from_iterable(_iterate_batches(iter(items), report_progress))
    )


def _iterate_batches(items: Iterator[T], report_progress: ReportProgress) -> Generator[list[T]]:
    while batch := [*islice(items, _BATCH_SIZE)]:
        yield batch
        report_progress(len(batch))
