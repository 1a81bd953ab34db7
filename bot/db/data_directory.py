"""The data directory, readable only by the login that Keyturn runs as.

It holds output of hosts and sessions, and anyone who can open the lock file can hold the lock.
"""

import os
from contextlib import suppress
from pathlib import Path


def make_data_directory(directory: Path) -> None:
    """Create the directory; an existing one keeps its mode. Raises OSError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"the directory {directory} cannot be made: {error.strerror}. KEYTURN_DATA names "
            "one that Keyturn may write in"
        ) from None


def make_database_file(file: str) -> None:
    """Create a database file before SQLite does, which would make it readable by everyone.

    If that fails, SQLite reports the error.
    """
    if not file.startswith("/"):  # an in-memory database
        return
    with suppress(OSError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
