"""Checks of who on this machine can write or read a file that Keyturn trusts."""

import errno
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

_WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# As many as Linux follows.
_MAX_LINKS = 40
# O_NONBLOCK, so that a named pipe is not waited for.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY_FLAGS = _FILE_FLAGS | os.O_DIRECTORY


def list_trusted_owners(data: Path | None = None) -> frozenset[int]:
    """Return the user IDs whose files are trusted: root, and the one that Keyturn runs as.

    data: Keyturn's data directory, for commands that another user runs. Its owner is trusted too.
    """
    owners = {0, os.geteuid()}
    if data is not None and data.exists():
        owners.add(data.stat().st_uid)
    return frozenset(owners)


def find_other_owner(path: Path, known: os.stat_result) -> str:
    """Return why a key is not Keyturn's alone, and what to do; "" if no other user owns it."""
    if known.st_uid in list_trusted_owners():
        return ""
    return f"{path} belongs to another user, who can read and replace it: chown it"


def find_writer(path: Path, owners: Collection[int] | None = None) -> str:
    """Return why others can change a file or directory, and what to do; "" if they cannot.

    A read-only mount proves nothing: the same directory can be writable elsewhere, as where
    `docker run --volume …:ro` mounts one of the machine.

    owners: the user IDs that may own it; None for any. Raises OSError if it cannot be read.
    """
    return describe_writer(path, path.stat(), owners)


def describe_writer(
    path: Path, known: os.stat_result, owners: Collection[int] | None = None
) -> str:
    """Return the same as find_writer for what was read of a path already."""
    if owners is not None and known.st_uid not in owners:
        return f"{path} belongs neither to root nor to Keyturn: chown it"
    # Others may write to a directory such as /tmp, but cannot rename files of other users there.
    sticky = stat.S_ISDIR(known.st_mode) and known.st_mode & stat.S_ISVTX
    # Every symbolic link has mode 777: its directory says who can replace it.
    is_link = stat.S_ISLNK(known.st_mode)
    if known.st_mode & _WRITTEN_BY_OTHERS and not (sticky or is_link):
        return f"{path} is writable by others: chmod go-w it"
    return ""


def find_writer_above(path: Path, owners: Collection[int] | None = None) -> str:
    """Return the same as find_writer for a path and all directories that lead to it.

    These include the directories of every symbolic link on the way, and those of its target.
    """
    for place in _iterate_way(path):
        if problem := describe_writer(place, place.lstat(), owners):
            return problem
    return ""


def _iterate_way(path: Path) -> Iterator[Path]:
    """Yield each directory and symbolic link that leads to a path, and what it names."""
    parts = [*reversed(path.absolute().parts[1:])]
    here, links = Path("/"), 0
    yield here
    while parts:
        part = parts.pop()
        place = here.parent if part == ".." else here / part
        yield place
        if not place.is_symlink():
            here = place
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = place.readlink()
        here = Path("/") if target.is_absolute() else here
        parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def open_trusted_directory(path: Path, owners: Collection[int]) -> int:
    """Return a descriptor of a directory that only *owners* can change, now and later.

    Each directory on the way is opened from the one above and checked by its descriptor, so none
    can be exchanged in between. Raises PermissionError with the reason, and OSError.
    """
    if problem := find_writer_above(path, owners):
        raise PermissionError(problem)
    here = Path("/")
    descriptor = os.open(here, _DIRECTORY_FLAGS)
    for part in path.resolve(strict=True).parts[1:]:
        above, here = descriptor, here / part
        try:
            descriptor = open_trusted_entry(above, here, owners, _DIRECTORY_FLAGS)
        finally:
            os.close(above)
    return descriptor


def open_trusted_entry(directory: int, path: Path, owners: Collection[int], flags: int = 0) -> int:
    """Return a descriptor of a file or directory in an open directory. Links are refused.

    Raises PermissionError with the reason, and OSError.
    """
    try:
        descriptor = os.open(path.name, flags | _FILE_FLAGS, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR} and path.is_symlink():
            raise PermissionError(
                f"{path} is a symbolic link: put the file or directory itself there"
            ) from None
        raise
    if problem := describe_writer(path, os.fstat(descriptor), owners):
        os.close(descriptor)
        raise PermissionError(problem)
    return descriptor


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
