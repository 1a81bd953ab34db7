"""Write files so that they survive a power failure."""

import os
from pathlib import Path


def sync_to_disk(path: Path) -> None:
    """Flush the content of a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
