"""Key files outside the database, created at the first start and readable by Keyturn alone."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from connectors.errors import DomainError
from connectors.permissions import find_other_owner


class KeyFileError(DomainError):
    """A key file cannot be used. The message says what to do."""

    code = "unusable-key-file"


def load_or_create_key(file: Path, create_content: Callable[[], bytes]) -> bytes:
    """Return the content of *file*, created if it is missing. Raises KeyFileError."""
    if not file.exists():
        with suppress(FileExistsError):
            _write_new_file(file, create_content())
    known = file.stat()
    if problem := find_other_owner(file, known):
        raise KeyFileError(problem)
    mode = known.st_mode & 0o777
    if mode & 0o077:
        raise KeyFileError(f"{file} can be read by others (mode {mode:o}): chmod 600 it")
    return file.read_bytes()


def _write_new_file(file: Path, content: bytes) -> None:
    """Write a new file that other users can never read.

    It gets its name when its content is on the disk, so an incomplete key never blocks a new one.
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
