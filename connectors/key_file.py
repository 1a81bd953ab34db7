"""Our own private key files: the ones that the inventory names and no others."""

import os
import stat
import threading
from functools import lru_cache
from pathlib import Path

import paramiko

from connectors.errors import SetupError

# What changes with a file: its number, its size, and when it and its place were written last.
_Version = tuple[int, int, int, int]
# A hundred hosts that are called at once mostly have one key.
_PARSING = threading.Lock()


def load_key(path: Path) -> paramiko.PKey:
    """Return the private key, with its certificate if `<path>-cert.pub` lies beside it.

    A key that others on this machine can read is refused, as OpenSSH does.
    """
    try:
        mode = path.stat().st_mode
    except OSError as trouble:
        raise SetupError(
            f"our key file {path} cannot be read ({trouble.strerror}): put the private key there"
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SetupError(
            f"our key file {path} is open to others on this machine: chmod 600 {path}"
        )
    if not os.access(path, os.R_OK):
        raise SetupError(f"our key file {path} cannot be read by us: chown it to our user")
    with _PARSING:
        return _parse_key(path, _read_version(path), _read_version(Path(f"{path}-cert.pub")))


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
    """Return the key, read anew only where its file or its certificate is another by now."""
    try:
        return paramiko.PKey.from_path(path)
    except (TypeError, paramiko.PasswordRequiredException):
        # cryptography says TypeError where a passphrase is wanted and none was given.
        raise SetupError(
            f"our key file {path} is protected by a passphrase, which nobody is there to type: "
            "use a key without one (ssh-keygen -p)"
        ) from None
    except Exception:  # noqa: BLE001 - whatever a parser says may quote the key: it is not told on
        raise SetupError(
            f"our key file {path} does not hold a private key that we can use: "
            "make one with ssh-keygen -t ed25519"
        ) from None
