"""Progress of long commands and of runs on standard error."""

import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from bot.cli.client import ServiceClient, build_path
from bot.cli.context import wants_json
from bot.cli.terminal import escape_for_terminal, print_json

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from bot.model.progress import BeginStage, ReportProgress

_POLL_SECONDS = 0.7
_BAR_WIDTH = 24
_SIGNS = (
    ("#", "done"),
    ("!", "failed"),
    ("x", "not_run"),
    (">", "running"),
    (".", "upcoming"),
)
# Redrawing more often is not visible.
_REDRAW_SECONDS = 0.2


def show_progress(*, quiet: bool = False) -> "BeginStage":
    """Return a function that draws a bar for each stage, in a terminal only and without --json.

    Args:
        quiet: Draw nothing anywhere.
    """
    from bot.model.progress import begin_silent_stage

    is_drawn = sys.stderr.isatty() and not (quiet or wants_json())
    return draw_progress_bar if is_drawn else begin_silent_stage


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


class LiveLine:
    """A line about progress: redrawn in a terminal, printed elsewhere when it changes."""

    def __init__(self) -> None:
        self.is_live = sys.stderr.isatty()
        self._last_text = ""

    def show(self, text: str, *, drawn: str = "") -> None:
        """Show a text. drawn: what a terminal shows instead of it."""
        if self.is_live:
            room = shutil.get_terminal_size().columns - 1
            shown = escape_for_terminal(drawn or text)[:room]
            click.echo(f"\r\033[K{shown}", err=True, nl=False)
        elif text != self._last_text:
            click.echo(escape_for_terminal(text), err=True)
        self._last_text = text

    def clear(self) -> None:
        """Remove the line from a terminal: what is printed next says more."""
        if self._last_text and self.is_live:
            click.echo("\r\033[K", err=True, nl=False)


@dataclass
class LiveOutputPrinter:
    """Prints each line of live output once."""

    _printed_lines: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def list_new_lines(self, live_outputs: list[Mapping[str, Any]]) -> Iterator[str]:
        """Yield new lines with their host, and the number of lines that were skipped."""
        for one in live_outputs:
            key = (one["run"], one["step"])
            fresh = one["total"] - self._printed_lines.get(key, 0)
            if fresh <= 0:
                continue
            self._printed_lines[key] = one["total"]
            newest = one["newest"][-fresh:]
            if fresh > len(newest):
                yield f"{one['host']}: [… {fresh - len(newest)} lines, in the output …]"
            for line in newest:
                yield f"{one['host']}: {line}"


def render_progress_bar(progress: Mapping[str, Any], *, width: int = _BAR_WIDTH) -> str:
    """Draw how far it is: # done, ! failed, x not run, > running, . upcoming; and in words."""
    total = progress["total"]
    signs = "".join(sign * progress[name] for sign, name in _SIGNS)
    drawn = "".join(signs[place * total // width] for place in range(width)) if total else ""
    ended = progress["done"] + progress["failed"] + progress["not_run"]
    counted = f"{ended} of {total} {progress['counted_in']} done"
    unwell = progress["needing_attention"]
    noted = f", {unwell} need{'s'[: unwell == 1]} attention" if unwell else ""
    failed = f", {progress['failed']} failed" if progress["failed"] else ""
    failed += f", {progress['not_run']} not run" if progress["not_run"] else ""
    lead = f"[{drawn}] " if total > 1 else ""
    return f"{lead}run {progress['run']}: {progress['label']}, {counted}{noted}{failed}"


def follow_run(service: ServiceClient, run_id: int) -> None:
    """Tell what happens until the run is over, unknown, or nothing is under way any more."""
    live, printer, position = LiveLine(), LiveOutputPrinter(), 0
    while True:
        progress = service.get(build_path("runs", run_id, "progress"), after=position)
        position = progress["position"]
        if wants_json():
            print_json(progress)
        else:
            for line in printer.list_new_lines(progress["live_output"]):
                live.clear()
                click.echo(escape_for_terminal(line))
            live.show(render_progress_bar(progress))
        if progress["ended"] or progress["state"] == "unknown":
            if live.is_live:
                click.echo(err=True)
            return
        time.sleep(_POLL_SECONDS)
