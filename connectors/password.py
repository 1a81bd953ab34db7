"""Passwords for network devices that take no key: one to a file, which nobody else may read."""

import stat
from dataclasses import dataclass, field
from pathlib import Path

from connectors.command import InvisibleCharacterError, refuse_invisible
from connectors.errors import SetupError


@dataclass(frozen=True)
class Password:
    """A password and where it came from; only the latter is ever shown."""

    file: Path
    text: str = field(repr=False)


def load_password(path: Path) -> Password:
    """Return the password in the first line of a file.

    A file that others on this machine can read is refused, as a key would be.
    """
    try:
        mode = path.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SetupError(
                f"the password file {path} is open to others on this machine: chmod 600 {path}"
            )
        text = path.read_bytes().decode()  # as it is: no line end is made another
    except (OSError, UnicodeDecodeError) as trouble:
        why = trouble.strerror if isinstance(trouble, OSError) else "it is no UTF-8 text"
        raise SetupError(
            f"the password file {path} cannot be read ({why}): put the password there"
        ) from None
    return Password(path, _require_one_line(text, path))


def _require_one_line(text: str, path: Path) -> str:
    """Refuse what would be more than an answer to one question of the device."""
    try:
        word = refuse_invisible(text.removesuffix("\n"))
    except InvisibleCharacterError:
        word = ""
    if not word:
        raise SetupError(
            f"the password file {path} must hold one line, the password, and nothing else"
        )
    return word
