"""The data directory and what is made in it: for the login that Keyturn runs as, and for no other.

What hosts answered and who is signed in is in there, and whoever can open the lock can hold it.
"""

import os
from contextlib import suppress
from pathlib import Path


def make_data_directory(directory: Path) -> None:
    """Make it unless it is there; one that is there keeps its rights. Raises OSError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as trouble:
        raise OSError(
            f"the directory {directory} cannot be made: {trouble.strerror}. KEYTURN_DATA names "
            "one that Keyturn may write in"
        ) from None


def make_database_file(file: str) -> None:
    """Make a database's file before SQLite does, which would let everybody read it.

    Where it cannot be made, SQLite says why.
    """
    if not file.startswith("/"):  # it lies in memory
        return
    with suppress(OSError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
