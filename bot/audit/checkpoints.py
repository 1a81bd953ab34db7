"""Witnesses: what keeps, outside the database, how far the change log once was.

Somebody who rewrites the database, or restores yesterday's, cannot rewrite these as well: a file
on another machine, a log server, and the log of each host that something was done on.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bot.model.canonical import encode_canonical


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

    @property
    def text(self) -> str:
        """The checkpoint in words that fit into any log."""
        told = " ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{_LINE_PREFIX} {told}"


@dataclass(frozen=True)
class WitnessedCheckpoint:
    """A checkpoint in a witness's file. run: that it was left for on a host; None elsewhere."""

    checkpoint: Checkpoint
    run: int | None = None


_CHECKPOINT_ADAPTER = TypeAdapter(Checkpoint)
# Logs put the time, the host and more before it, or the whole into JSON.
_LINE_PREFIX = "keyturn checkpoint"
_RUN_PATTERN = re.compile(rf"\brun (\d{{1,9}}) step \d{{1,9}}: {_LINE_PREFIX} ")
_CHECKPOINT_PATTERN = re.compile(
    _LINE_PREFIX
    + r" seq=(\d+) hash=([0-9a-f]{64}) at=(\d+) key=([0-9a-f]{64}) signature=([0-9a-f]{128})"
)


def write_checkpoint(file: Path, checkpoint: Checkpoint) -> None:
    """Add a checkpoint, durably, unless the last one there says the same."""
    last = _read_last_line(file)
    if _parse_hash(last) == checkpoint.hash:
        return
    # A line that a crash cut short is left as it is, for people to see, and a new one begun.
    torn = "\n" if last and not last.endswith("\n") else ""
    with file.open("a") as out:
        out.write(torn + encode_canonical(vars(checkpoint)) + "\n")
        out.flush()
        os.fsync(out.fileno())


def read_newest_checkpoint(file: Path) -> Checkpoint | None:
    """Return the checkpoint that was added last; None if there is none, or it was cut short."""
    return _parse_checkpoint(_read_last_line(file))


def read_checkpoints(file: Path) -> list[Checkpoint]:
    """Read every checkpoint; see `sightings`."""
    return [one.checkpoint for one in read_witnessed_checkpoints(file)]


def read_witnessed_checkpoints(file: Path) -> list[WitnessedCheckpoint]:
    """Read every checkpoint from a witness's file, or from a log of a host or of a log server.

    What else stands there is passed over, also a line that a crash cut short. Raises ValueError
    if there is no checkpoint at all.
    """
    lines = file.read_text(errors="replace").splitlines()
    found = [
        WitnessedCheckpoint(point, _parse_run(line))
        for line in lines
        if (point := _parse_checkpoint(line)) is not None
    ]
    if not found:
        raise ValueError(f"{file} holds no checkpoint of a change log")
    return found


def _parse_checkpoint(line: str) -> Checkpoint | None:
    if said := _CHECKPOINT_PATTERN.search(line):
        seq, digest, at, key, signature = said.groups()
        return Checkpoint(int(seq), digest, int(at), key, signature)
    try:
        return _CHECKPOINT_ADAPTER.validate_json(line)
    except ValidationError:
        return None


def _parse_run(line: str) -> int | None:
    named = _RUN_PATTERN.search(line)
    return int(named[1]) if named else None


def _read_last_line(file: Path) -> str:
    try:
        with file.open("rb") as lines:
            lines.seek(max(0, file.stat().st_size - 4096))
            whole = lines.read().decode(errors="replace").splitlines(keepends=True)
            return whole[-1] if whole else ""
    except FileNotFoundError:
        return ""


def _parse_hash(line: str) -> str:
    point = _parse_checkpoint(line)
    return point.hash if point else ""
