"""Key files: made at the first start, outside the database, for Keyturn alone."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class KeyFileError(Exception):
    """A key of Keyturn's cannot be used. The message says what to do."""


def load_or_create_key(file: Path, create_content: Callable[[], bytes]) -> bytes:
    """Return what *file* holds, made on the spot if there is none yet. Raises BadKey."""
    if not file.exists():
        with suppress(FileExistsError):
            _write_new_file(file, create_content())
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        raise KeyFileError(f"{file} can be read by others (mode {mode:o}): chmod 600 it")
    return file.read_bytes()


def _write_new_file(file: Path, content: bytes) -> None:
    """Write a file that was not there, and that nobody else can read at any moment.

    It has its name once all of it is on the disk: half a key would be in the way of a whole one.
    """
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.link(part, file)
    finally:
        part.unlink(missing_ok=True)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
