"""Progress bars of long commands in a terminal; no output in pipes and files."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from bot.model.progress import BeginStage, ReportProgress

# Redrawing more often is not visible.
_REDRAW_SECONDS = 0.2


def show_progress(*, quiet: bool = False) -> "BeginStage":
    """Return a function that draws a bar for each stage, in a terminal only.

    Args:
        quiet: Draw nothing anywhere.
    """
    from bot.model.progress import begin_silent_stage

    return begin_silent_stage if quiet or not sys.stderr.isatty() else draw_progress_bar


@contextmanager
def draw_progress_bar(label: str, get_total: Callable[[], int]) -> "Generator[ReportProgress]":
    """Draw a bar on standard error, and end its line also when the work fails."""
    length = get_total()
    if not length:
        yield lambda _more: None
        return
    bar: ProgressBar[int] = click.progressbar(length=length, label=label, file=sys.stderr)
    waiting, drawn = 0, time.monotonic()

    def advance(more: int) -> None:
        nonlocal waiting, drawn
        waiting += more
        if time.monotonic() - drawn >= _REDRAW_SECONDS:
            bar.update(waiting)
            waiting, drawn = 0, time.monotonic()

    with bar:
        try:
            yield advance
        finally:
            bar.update(waiting)
