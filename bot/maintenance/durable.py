"""Durable: what was written, or put under another name, is still so after the power was cut."""

import os
from pathlib import Path


def sync_to_disk(path: Path) -> None:
    """Return once a file's content, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
