"""Checks of who on this machine can write or read a file that Keyturn trusts."""

import os
import stat
from collections.abc import Collection
from pathlib import Path

_WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def list_trusted_owners() -> frozenset[int]:
    """Return the user IDs whose files are trusted: root, and the one that Keyturn runs as."""
    return frozenset({0, os.geteuid()})


def find_writer(path: Path, owners: Collection[int] | None = None) -> str:
    """Return why others can change a file or directory, and what to do; "" if they cannot.

    owners: the user IDs that may own it; None for any. Nothing on a read-only mount can change.
    Raises OSError if the file cannot be read.
    """
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return ""
    known = path.stat()
    if owners is not None and known.st_uid not in owners:
        return f"{path} belongs neither to root nor to Keyturn: chown it"
    # Others may write to a directory such as /tmp, but cannot rename files of other users there.
    sticky = stat.S_ISDIR(known.st_mode) and known.st_mode & stat.S_ISVTX
    if known.st_mode & _WRITTEN_BY_OTHERS and not sticky:
        return f"{path} is writable by others: chmod go-w it"
    return ""


def find_writer_above(path: Path, owners: Collection[int] | None = None) -> str:
    """Return the same as find_writer for a directory and all its parent directories.

    For a symbolic link, both its own parents and those of its target count.
    """
    way = [*reversed(path.absolute().parents), path.absolute()]
    way += [one for one in (*reversed(path.resolve().parents), path.resolve()) if one not in way]
    return next(filter(None, (find_writer(one, owners) for one in way)), "")


def find_reader(path: Path) -> str:
    """Return why others can read or change a file of secrets, and what to do; "" if they cannot.

    A group may read a file that root owns: that is how root gives one to a service.
    """
    known = path.stat()
    if known.st_uid not in {*list_trusted_owners(), path.absolute().parent.stat().st_uid}:
        return f"{path} belongs to another user: chown it"
    forbidden = stat.S_IRWXG | stat.S_IRWXO
    if known.st_uid == 0 and os.geteuid() != 0:
        forbidden &= ~stat.S_IRGRP
    if known.st_mode & forbidden:
        return f"{path} may contain secrets and others can read or write it: chmod 600 it"
    return ""
