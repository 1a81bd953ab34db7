"""`keyturn run N --follow`: a run as it happens, with what its hosts say as they say it."""

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from bot.cli.client import Service, format_state, path_of

_LOOK_SECONDS = 0.7
_WIDTH = 24


@dataclass
class Heard:
    """What was told already, so that no line is told twice."""

    _told: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def lines(self, heard: list[Mapping[str, Any]]) -> Iterator[str]:
        """Yield what is new, each line with its host, and how many are left out where some are."""
        for one in heard:
            key = (one["run"], one["step"])
            fresh = one["total"] - self._told.get(key, 0)
            if fresh <= 0:
                continue
            self._told[key] = one["total"]
            newest = one["newest"][-fresh:]
            if fresh > len(newest):
                yield f"{one['host']}: [… {fresh - len(newest)} lines, in the output …]"
            for line in newest:
                yield f"{one['host']}: {line}"


def bar(progress: Mapping[str, Any], *, width: int = _WIDTH) -> str:
    """Draw how far it is: # done, ! failed, > under way, . to come; and the same in words."""
    total = progress["total"]
    signs = "".join(
        sign * progress[name]
        for sign, name in (("#", "done"), ("!", "failed"), (">", "under_way"), (".", "to_come"))
    )
    drawn = "".join(signs[place * total // width] for place in range(width)) if total else ""
    counted = f"{progress['done']} of {total} {progress['counted_in']} done"
    unwell = progress["needing_attention"]
    noted = f", {unwell} need{'s'[: unwell == 1]} attention" if unwell else ""
    failed = f", {progress['failed']} failed" if progress["failed"] else ""
    lead = f"[{drawn}] " if total > 1 else ""
    return f"{lead}run {progress['run']}: {format_state(progress)}, {counted}{noted}{failed}"


def follow(reached: Service, number: int, *, as_json: bool) -> None:
    """Tell what happens until the run is over, unknown, or nothing is under way any more."""
    screen, heard, position = _Screen(), Heard(), 0
    while True:
        seen = reached.get(path_of("runs", number, "progress"), after=position)
        position = seen["position"]
        if as_json:
            click.echo(json.dumps(seen, ensure_ascii=False))
        else:
            screen.show(heard.lines(seen["heard"]), bar(seen))
        if seen["over"] or seen["state"] == "unknown":
            screen.end()
            return
        time.sleep(_LOOK_SECONDS)


class _Screen:
    """Lines on standard output; below them, where a person looks on, how far it is."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last = ""

    def show(self, lines: Iterator[str], state: str) -> None:
        from bot.model.text import escape_control

        told = [*lines]
        if self._live and (told or state != self._last):
            click.echo("\r\033[K", err=True, nl=False)
        for line in told:
            click.echo(escape_control(line))
        if self._live:
            room = shutil.get_terminal_size().columns - 1
            click.echo(f"\r\033[K{escape_control(state)[:room]}", err=True, nl=False)
        elif state != self._last:
            click.echo(escape_control(state), err=True)
        self._last = state

    def end(self) -> None:
        if self._live:
            click.echo("", err=True)
