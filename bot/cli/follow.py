"""`keyturn run N --follow`: a run as it happens, with what its hosts say as they say it."""

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
    """What was told already, so that no line is told twice."""

    _printed_lines: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def list_new_lines(self, live_outputs: list[Mapping[str, Any]]) -> Iterator[str]:
        """Yield what is new, each line with its host, and how many are left out where some are."""
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
    screen, heard, position = _ProgressScreen(), LiveOutputPrinter(), 0
    while True:
        seen = service.get(build_path("runs", run_id, "progress"), after=position)
        position = seen["position"]
        if as_json:
            click.echo(json.dumps(seen, ensure_ascii=False))
        else:
            screen.print_update(
                heard.list_new_lines(seen["live_output"]), render_progress_bar(seen)
            )
        if seen["ended"] or seen["state"] == "unknown":
            screen.end_line()
            return
        time.sleep(_POLL_SECONDS)


class _ProgressScreen:
    """Lines on standard output; below them, where a person looks on, how far it is."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._last_state = ""

    def print_update(self, lines: Iterator[str], state: str) -> None:
        from bot.model.text import escape_control

        told = [*lines]
        if self._is_terminal and (told or state != self._last_state):
            click.echo("\r\033[K", err=True, nl=False)
        for line in told:
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
