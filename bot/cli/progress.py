"""How far long work is: a bar on a terminal, and nothing where a program reads along."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from bot.model.progress import BeginStage, ReportProgress

# Drawn no oftener than somebody sees.
_REDRAW_SECONDS = 0.2


def show_progress(*, quiet: bool = False) -> "BeginStage":
    """Return what draws a bar for each stage of work where a person looks on. quiet: nowhere."""
    from bot.model.progress import begin_silent_stage

    return begin_silent_stage if quiet or not sys.stderr.isatty() else draw_progress_bar


@contextmanager
def draw_progress_bar(label: str, get_total: Callable[[], int]) -> "Generator[ReportProgress]":
    """Draw a bar on standard error that ends in a line of its own, as far as the work came."""
    length = get_total()
    if not length:
        yield lambda _more: None
        return
    bar: ProgressBar[int] = click.progressbar(length=length, label=label, file=sys.stderr)
    waiting, drawn = 0, time.monotonic()

    def told(more: int) -> None:
        nonlocal waiting, drawn
        waiting += more
        if time.monotonic() - drawn >= _REDRAW_SECONDS:
            bar.update(waiting)
            waiting, drawn = 0, time.monotonic()

    with bar:
        try:
            yield told
        finally:
            bar.update(waiting)
