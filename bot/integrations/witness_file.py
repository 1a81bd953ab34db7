"""Checkpoints in files outside the database.

A file on another machine, the log of a log server, or the system log of a host that ran a step.
"""

import os
from pathlib import Path

from bot.audit.checkpoints import Checkpoint, parse_line, parse_note
from bot.model.errors import InvalidRequestError


def write_checkpoint(file: Path, checkpoint: Checkpoint) -> None:
    """Append a checkpoint durably, unless the last one in the file is the same."""
    last = _read_last_line(file)
    seen = parse_line(last)
    if seen is not None and seen.text == checkpoint.text:
        return
    # A line that a crash cut short stays as it is, for people to see.
    torn = "\n" if last and not last.endswith("\n") else ""
    with file.open("a") as out:
        out.write(f"{torn}{checkpoint.line}\n")
        out.flush()
        os.fsync(out.fileno())


def read_newest_checkpoint(file: Path) -> Checkpoint | None:
    """Return the checkpoint on the last line; None if there is none or it was cut short."""
    return parse_line(_read_last_line(file))


def read_checkpoints(file: Path) -> list[Checkpoint]:
    """Read every checkpoint from a witness's file, or from a log of a host or of a log server.

    The file of another witness, with one signed note, is read as well. Other lines, and a line
    that a crash cut short, are ignored. Raises InvalidRequestError if the file holds no
    checkpoint.
    """
    text = file.read_text(errors="replace")
    if (note := parse_note(text)) is not None:
        return [note]
    found = [point for line in text.splitlines() if (point := parse_line(line)) is not None]
    if not found:
        raise InvalidRequestError(
            f"{file} holds no checkpoint of a change log: name the file of a witness, or a log of "
            "a host"
        )
    return found


def _read_last_line(file: Path) -> str:
    try:
        with file.open("rb") as lines:
            lines.seek(max(0, file.stat().st_size - 4096))
            last_lines = lines.read().decode(errors="replace").splitlines(keepends=True)
            return last_lines[-1] if last_lines else ""
    except FileNotFoundError:
        return ""
