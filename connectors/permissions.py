"""Who else on this machine may change or read a file that Keyturn trusts."""

import os
import stat
from collections.abc import Collection
from pathlib import Path

_WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def list_trusted_owners() -> frozenset[int]:
    """Return the users whose files we take as our own: root, and the one we run as."""
    return frozenset({0, os.geteuid()})


def find_writer(path: Path, owners: Collection[int] | None = None) -> str:
    """Return why others may change a file or directory, and what to do; "" if they may not.

    owners: who may own it; left out, anybody. What is mounted read-only changes for nobody here.
    Raises OSError where it cannot be seen.
    """
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return ""
    known = path.stat()
    if owners is not None and known.st_uid not in owners:
        return f"{path} is neither root's nor Keyturn's: chown it"
    # In a directory such as /tmp others may write, and yet not rename what is not theirs.
    sticky = stat.S_ISDIR(known.st_mode) and known.st_mode & stat.S_ISVTX
    if known.st_mode & _WRITTEN_BY_OTHERS and not sticky:
        return f"{path} can be written by others: chmod go-w it"
    return ""


def find_writer_above(path: Path, owners: Collection[int] | None = None) -> str:
    """Return the same of a directory and all directories that it lies in.

    A symbolic link counts as where it lies and as where it leads.
    """
    way = [*reversed(path.absolute().parents), path.absolute()]
    way += [one for one in (*reversed(path.resolve().parents), path.resolve()) if one not in way]
    return next(filter(None, (find_writer(one, owners) for one in way)), "")


def find_reader(path: Path) -> str:
    """Return why others may read or change a file of secrets, and what to do; "" if not.

    A group may read a file of root's: it is how root hands one to a service.
    """
    known = path.stat()
    if known.st_uid not in {*list_trusted_owners(), path.absolute().parent.stat().st_uid}:
        return f"{path} belongs to another user: chown it"
    forbidden = stat.S_IRWXG | stat.S_IRWXO
    if known.st_uid == 0 and os.geteuid() != 0:
        forbidden &= ~stat.S_IRGRP
    if known.st_mode & forbidden:
        return f"{path} can be read or written by others and may hold secrets: chmod 600 it"
    return ""
