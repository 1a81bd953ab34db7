"""Checkpoints of the change log that witnesses keep outside the database.

An attacker who rewrites the database, or restores an old copy of it, cannot rewrite the witnesses
as well: a file on another machine, a log server, and the system log of each host that ran a step.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bot.model.canonical import encode_canonical
from bot.model.errors import InvalidRequestError


@dataclass(frozen=True)
class Checkpoint:
    """The head of the log at one time, signed."""

    seq: int
    """The number of the newest entry."""
    hash: str
    """Its hash, 64 hex digits."""
    at: int
    """Microseconds since 1970, UTC."""
    key: str
    """The public key, 64 hex digits."""
    signature: str
    """The signature of the hash, 128 hex digits."""

    @property
    def text(self) -> str:
        """The checkpoint as text for any log."""
        members = " ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{_LINE_PREFIX} {members}"


@dataclass(frozen=True)
class WitnessedCheckpoint:
    """A checkpoint in a witness's file."""

    checkpoint: Checkpoint
    run: int | None = None
    """The run whose step wrote it to the log of a host; None elsewhere."""


_CHECKPOINT_ADAPTER = TypeAdapter(Checkpoint)
# Logs prefix the time, the host and more, or put the line into JSON.
_LINE_PREFIX = "keyturn checkpoint"
_RUN_PATTERN = re.compile(rf"\brun (\d{{1,9}}) step \d{{1,9}}: {_LINE_PREFIX} ")
_CHECKPOINT_PATTERN = re.compile(
    _LINE_PREFIX
    + r" seq=(\d+) hash=([0-9a-f]{64}) at=(\d+) key=([0-9a-f]{64}) signature=([0-9a-f]{128})"
)


def write_checkpoint(file: Path, checkpoint: Checkpoint) -> None:
    """Append a checkpoint durably, unless the last one in the file has the same hash."""
    last = _read_last_line(file)
    if _parse_hash(last) == checkpoint.hash:
        return
    # A line that a crash cut short stays as it is, for people to see.
    torn = "\n" if last and not last.endswith("\n") else ""
    with file.open("a") as out:
        out.write(torn + encode_canonical(vars(checkpoint)) + "\n")
        out.flush()
        os.fsync(out.fileno())


def read_newest_checkpoint(file: Path) -> Checkpoint | None:
    """Return the checkpoint on the last line; None if there is none or it was cut short."""
    return _parse_checkpoint(_read_last_line(file))


def read_checkpoints(file: Path) -> list[Checkpoint]:
    """Read every checkpoint of a file; see read_witnessed_checkpoints()."""
    return [one.checkpoint for one in read_witnessed_checkpoints(file)]


def read_witnessed_checkpoints(file: Path) -> list[WitnessedCheckpoint]:
    """Read every checkpoint from a witness's file, or from a log of a host or of a log server.

    Other lines, and a line that a crash cut short, are ignored. Raises InvalidRequestError if
    the file holds no checkpoint.
    """
    lines = file.read_text(errors="replace").splitlines()
    found = [
        WitnessedCheckpoint(point, _parse_run(line))
        for line in lines
        if (point := _parse_checkpoint(line)) is not None
    ]
    if not found:
        raise InvalidRequestError(
            f"{file} holds no checkpoint of a change log: name the file of a witness, or a log of "
            "a host"
        )
    return found


def _parse_checkpoint(line: str) -> Checkpoint | None:
    if match := _CHECKPOINT_PATTERN.search(line):
        seq, digest, at, key, signature = match.groups()
        return Checkpoint(int(seq), digest, int(at), key, signature)
    try:
        return _CHECKPOINT_ADAPTER.validate_json(line)
    except ValidationError:
        return None


def _parse_run(line: str) -> int | None:
    match = _RUN_PATTERN.search(line)
    return int(match[1]) if match else None


def _read_last_line(file: Path) -> str:
    try:
        with file.open("rb") as lines:
            lines.seek(max(0, file.stat().st_size - 4096))
            last_lines = lines.read().decode(errors="replace").splitlines(keepends=True)
            return last_lines[-1] if last_lines else ""
    except FileNotFoundError:
        return ""


def _parse_hash(line: str) -> str:
    point = _parse_checkpoint(line)
    return point.hash if point else ""
