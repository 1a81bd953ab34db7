"""Times in the reader's zone, and tables and colours for people who look at a terminal."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from bot.cli.context import NOT_UNDERSTOOD, exit_with_error, wants_json

# Key of the click context under which the options --utc and --iso are kept.
_TIME_STYLES = "bot.cli.times"
# Up to this age, a terminal shows how long ago a time is.
_RELATIVE_SECONDS = 24 * 3600
# By the label of a state, in lower case: the tone that chat and pages show. A test holds them
# together, because importing their table takes as long as the rest of a command.
_STATE_COLOURS: Mapping[str, str] = {
    **dict.fromkeys(("succeeded", "reachable", "active", "as set"), "green"),
    **dict.fromkeys(("needs attention", "needs approval", "planned", "on hold"), "yellow"),
    **dict.fromkeys(("counter-proposal", "unknown outcome", "stale", "starts later"), "yellow"),
    "cannot be read": "yellow",
    **dict.fromkeys(("failed", "denied", "stopped"), "red"),
    **dict.fromkeys(("unreachable", "host key mismatch", "changed outside", "missing"), "red"),
    **dict.fromkeys(("planning", "queued", "starting", "running"), "cyan"),
}


def time_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--utc` and `--iso`, which apply to every time that a command prints or reads."""

    def keep(context: click.Context, option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - as click calls it
        if value:
            context.meta[_TIME_STYLES] = get_time_styles() | {option.name}

    for name, help_text in (("--iso", "Times as in ISO 8601."), ("--utc", "Times in UTC.")):
        command = click.option(
            name, is_flag=True, expose_value=False, callback=keep, help=help_text
        )(command)
    return command


def get_time_styles() -> frozenset[str]:
    """Return which of `utc` and `iso` the reader wants."""
    context = click.get_current_context(silent=True)
    return frozenset(context.meta.get(_TIME_STYLES, ())) if context else frozenset()


def get_zone_name() -> str:
    """Return the reader's time zone, as the parsers of bot.model.times take it."""
    from bot.model.times import is_time_zone

    if "utc" in get_time_styles():
        return "UTC"
    name = os.environ.get("TZ", "").removeprefix(":")
    name = name or os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    return name if name and is_time_zone(name) else f"{datetime.now().astimezone():%z}"


def to_local_time(iso_time: str) -> datetime:
    """Return a time of a response in the reader's zone."""
    zone = UTC if "utc" in get_time_styles() else None
    return datetime.fromisoformat(iso_time).astimezone(zone)


def format_stored_time(at: int, *, with_seconds: bool = False) -> str:
    """Return a time of the database, in microseconds since 1970, as format_time() does."""
    from bot.model.times import format_iso

    return format_time(format_iso(at), with_seconds=with_seconds)


def format_time(iso_time: str, *, with_seconds: bool = False) -> str:
    """Return a time of a response as text, in the reader's zone.

    A terminal shows `3 min ago`, or `2026-03-01 14:30`; a pipe gets `2026-03-01 14:30+01:00`.
    """
    local = to_local_time(iso_time)
    seconds = (datetime.now(UTC) - local).total_seconds()
    is_recent = abs(seconds) < _RELATIVE_SECONDS
    if sys.stdout.isatty() and not get_time_styles() and not with_seconds and is_recent:
        return _format_relative(seconds)
    return _format_local_time(local, with_seconds=with_seconds)


def format_sentence_times(text: str) -> str:
    """Return a sentence of a response with its times in the reader's zone."""
    from bot.model.times import split_times

    return "".join(
        part if at is None else _format_local_time(to_local_time(at.isoformat()))
        for part, at in split_times(text)
    )


def _format_local_time(local: datetime, *, with_seconds: bool = False) -> str:
    styles = get_time_styles()
    if "iso" in styles:
        return local.isoformat(timespec="seconds").replace("+00:00", "Z")
    text = local.isoformat(" ", "seconds" if with_seconds else "minutes")
    if sys.stdout.isatty() and not styles:
        return text[: 19 if with_seconds else 16]
    return text.replace("+00:00", "Z")


def print_json(data: object, *, indent: int | None = None) -> None:
    """Print data as JSON."""
    click.echo(json.dumps(data, indent=indent, ensure_ascii=False))


def print_result(
    data: object, lines: Sequence[str], *, empty_message: str = "", indent: int | None = None
) -> None:
    """Print data as JSON, or lines for people; to standard error the message if there are none."""
    if wants_json():
        print_json(data, indent=indent)
        return
    for line in lines:
        click.echo(escape_for_terminal(line))
    if not lines and empty_message:
        click.echo(empty_message, err=True)


def escape_for_terminal(text: str) -> str:
    """Escape control characters: the output of hosts is not trusted."""
    from bot.model.text import escape_control

    return escape_control(text)


def write_output(file: Path, text: str) -> None:
    """Write a text to a file, or to standard output for `-`."""
    if str(file) == "-":
        click.echo(text.removesuffix("\n"))
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        exit_with_error(f"{file}: {error.strerror}", NOT_UNDERSTOOD)
    click.echo(f"wrote {file}")


def print_table(
    data: object, headings: Sequence[str], rows: Sequence[Sequence[str]], *, empty_message: str
) -> None:
    """Print data as JSON, or rows in columns: with headings and colours in a terminal only.

    Args:
        headings: `STATE` and `STATUS` name the columns that have colours.
        empty_message: For standard error, if there are no rows.
    """
    if wants_json():
        print_json(data)
        return
    from bot.model.text import escape_to_one_line

    if not rows:
        click.echo(empty_message, err=True)
        return
    cells = [[escape_to_one_line(cell) for cell in row] for row in rows]
    shown = [[*headings], *cells] if sys.stdout.isatty() else cells
    widths = [max(len(row[n]) for row in shown) for n in range(len(headings))]
    for row in shown:
        is_heading = row is shown[0] and row == [*headings]
        padded = [
            cell.rjust(width) if cells[0][n].isdecimal() and n == 0 else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        padded[-1] = padded[-1].rstrip()
        if is_heading:
            padded = [click.style(cell, bold=True) for cell in padded]
        for n, heading in enumerate(headings):
            if heading in {"STATE", "STATUS"} and not is_heading:
                padded[n] = style_state(padded[n])
        click.echo("  ".join(padded))


def style_state(text: str) -> str:
    """Return the text in the colour of the state that it is."""
    return click.style(text, fg=_STATE_COLOURS.get(text.strip().lower()))


def style_run(text: str, state: str) -> str:
    """Return the text of a run with its title and its state in colour."""
    title, newline, rest = text.partition("\n")
    return click.style(title, bold=True) + newline + rest.replace(state, style_state(state), 1)


def is_quiet() -> bool:
    """Return whether the environment asks for no colours: https://no-color.org."""
    return bool(os.environ.get("NO_COLOR"))


def _format_relative(seconds: float) -> str:
    """Return `3 min ago` or `in 2 h`.

    Args:
        seconds: Negative for a time to come.
    """
    age = abs(seconds)
    units = ((3600, "h"), (60, "min"), (1, "s"))
    size, unit = next((each for each in units if age >= 1.5 * each[0]), units[-1])
    text = f"{age / size:.0f} {unit}"
    return f"{text} ago" if seconds >= 0 else f"in {text}"
