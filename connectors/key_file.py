"""Keyturn's private key files: those that the inventory names and no others."""

import os
import stat
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import paramiko

from connectors.errors import SetupError
from connectors.permissions import find_other_owner

LoadKey: TypeAlias = Callable[[Path], paramiko.PKey]
# What changes with a file: its inode, its size, and its times of modification and change.
_Version = tuple[int, int, int, int]
# A hundred connections at a time mostly use one key: it is parsed once.
_PARSING = threading.Lock()


def load_key(path: Path) -> paramiko.PKey:
    """Return the private key, with its certificate if `<path>-cert.pub` exists.

    A key that others on this machine can read is refused, as by OpenSSH. Raises SetupError.
    """
    try:
        known = path.stat()
    except OSError as error:
        raise SetupError(
            f"cannot read the key file {path} ({error.strerror}): put the private key there"
        ) from None
    if problem := find_other_owner(path, known):
        raise SetupError(f"the key file {problem}")
    if known.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SetupError(
            f"the key file {path} is open to others on this machine: run chmod 600 {path}"
        )
    if not os.access(path, os.R_OK):
        raise SetupError(f"cannot read the key file {path}: chown it to Keyturn's user")
    with _PARSING:
        return _parse_key(path, _read_version(path), _read_version(Path(f"{path}-cert.pub")))


def load_own_key(path: Path) -> paramiko.PKey:
    """Return a person's own key: from their agent if it holds it, otherwise from the file.

    path: the private key, or the public key of one in the agent. Raises SetupError.
    """
    public = path if path.suffix == ".pub" else path.with_name(f"{path.name}.pub")
    try:
        wanted = public.read_text().split()[1:2]
    except OSError:
        wanted = []
    agent = paramiko.Agent()
    for key in agent.get_keys():
        if [key.get_base64()] == wanted:
            # It needs the connection to the agent.
            return key
    agent.close()
    return load_key(path)


def _read_version(path: Path) -> _Version | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@lru_cache(maxsize=16)
def _parse_key(
    path: Path, _key: _Version | None, _certificate: _Version | None, /
) -> paramiko.PKey:
    """Return the key; the file is read again only if it or its certificate has changed."""
    try:
        return paramiko.PKey.from_path(path)
    except (TypeError, paramiko.PasswordRequiredException):
        # cryptography raises TypeError for a key with a passphrase.
        raise SetupError(
            f"the key file {path} has a passphrase, which Keyturn cannot type: "
            "remove it with ssh-keygen -p"
        ) from None
    except Exception:  # noqa: BLE001 - a parser's message may quote the key: it is not shown
        raise SetupError(
            f"the key file {path} does not contain a usable private key: "
            "create one with ssh-keygen -t ed25519"
        ) from None
