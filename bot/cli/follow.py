"""`keyturn run N --follow`: progress and live output of a run."""

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from bot.cli.client import ServiceClient, build_path, format_run_state

_POLL_SECONDS = 0.7
_BAR_WIDTH = 24


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
    """Draw how far it is: # done, ! failed, > under way, . to come; and the same in words."""
    total = progress["total"]
    signs = "".join(
        sign * progress[name]
        for sign, name in (("#", "done"), ("!", "failed"), (">", "running"), (".", "upcoming"))
    )
    drawn = "".join(signs[place * total // width] for place in range(width)) if total else ""
    counted = f"{progress['done']} of {total} {progress['counted_in']} done"
    unwell = progress["needing_attention"]
    noted = f", {unwell} need{'s'[: unwell == 1]} attention" if unwell else ""
    failed = f", {progress['failed']} failed" if progress["failed"] else ""
    lead = f"[{drawn}] " if total > 1 else ""
    return f"{lead}run {progress['run']}: {format_run_state(progress)}, {counted}{noted}{failed}"


def follow_run(service: ServiceClient, run_id: int, *, as_json: bool) -> None:
    """Tell what happens until the run is over, unknown, or nothing is under way any more."""
    screen, printer, position = _ProgressScreen(), LiveOutputPrinter(), 0
    while True:
        progress = service.get(build_path("runs", run_id, "progress"), after=position)
        position = progress["position"]
        if as_json:
            click.echo(json.dumps(progress, ensure_ascii=False))
        else:
            screen.print_update(
                printer.list_new_lines(progress["live_output"]), render_progress_bar(progress)
            )
        if progress["ended"] or progress["state"] == "unknown":
            screen.end_line()
            return
        time.sleep(_POLL_SECONDS)


class _ProgressScreen:
    """Prints lines to standard output, and the progress below them in a terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._last_state = ""

    def print_update(self, lines: Iterator[str], state: str) -> None:
        from bot.model.text import escape_control

        new_lines = [*lines]
        if self._is_terminal and (new_lines or state != self._last_state):
            click.echo("\r\033[K", err=True, nl=False)
        for line in new_lines:
            click.echo(escape_control(line))
        if self._is_terminal:
            room = shutil.get_terminal_size().columns - 1
            click.echo(f"\r\033[K{escape_control(state)[:room]}", err=True, nl=False)
        elif state != self._last_state:
            click.echo(escape_control(state), err=True)
        self._last_state = state

    def end_line(self) -> None:
        if self._is_terminal:
            click.echo("", err=True)
