"""Witnesses: files outside the database that keep how far the change log once was.

Somebody who rewrites the database, or restores yesterday's, cannot rewrite these as well.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from bot.digest import canonical


@dataclass(frozen=True)
class Checkpoint:
    """The head of the log as it once was, signed.

    seq, hash: the newest entry then. at: microseconds. key: public, 64 hex digits.
    """

    seq: int
    hash: str
    at: int
    key: str
    signature: str


def testify(file: Path, point: Checkpoint) -> None:
    """Add a checkpoint, durably, unless the last one there says the same."""
    last = _last_line(file)
    if _hash_in(last) == point.hash:
        return
    # A line that a crash cut short is left as it is, for people to see, and a new one begun.
    torn = "\n" if last and not last.endswith("\n") else ""
    with file.open("a") as out:
        out.write(torn + canonical(vars(point)) + "\n")
        out.flush()
        os.fsync(out.fileno())


def read(file: Path) -> list[Checkpoint]:
    """Read every checkpoint, one JSON object a line. Raises ValueError naming the line."""
    found: list[Checkpoint] = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            found.append(Checkpoint(**json.loads(line)))
        except (ValueError, TypeError):
            raise ValueError(f"{file}, line {number}: this is no checkpoint") from None
    return found


def _last_line(file: Path) -> str:
    try:
        with file.open("rb") as lines:
            lines.seek(max(0, file.stat().st_size - 4096))
            whole = lines.read().decode(errors="replace").splitlines(keepends=True)
            return whole[-1] if whole else ""
    except FileNotFoundError:
        return ""


def _hash_in(line: str) -> str:
    try:
        return Checkpoint(**json.loads(line)).hash
    except (ValueError, TypeError):
        return ""
