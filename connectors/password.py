"""Password files for network devices that accept no key: one password in each file."""

import stat
from dataclasses import dataclass, field
from pathlib import Path

from connectors.errors import SetupError
from connectors.permissions import find_other_owner
from connectors.visible_text import InvisibleCharacterError, refuse_invisible


@dataclass(frozen=True)
class Password:
    """A password and its file; only the file is ever shown."""

    file: Path
    text: str = field(repr=False)


def load_password(path: Path) -> Password:
    """Return the password in the first line of a file.

    A file that others on this machine can read is refused, like a key. Raises SetupError.
    """
    try:
        known = path.stat()
        if problem := find_other_owner(path, known):
            raise SetupError(f"the password file {problem}")
        if known.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SetupError(
                f"the password file {path} is open to others on this machine: run chmod 600 {path}"
            )
        text = path.read_bytes().decode()  # read as bytes, so that line ends are not translated
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SetupError(
            f"cannot read the password file {path} ({reason}): put the password there"
        ) from None
    return Password(path, _require_one_line(text, path))


def _require_one_line(text: str, path: Path) -> str:
    """Return the password, or raise SetupError unless the file is exactly one line."""
    try:
        word = refuse_invisible(text.removesuffix("\n"))
    except InvisibleCharacterError:
        word = ""
    if not word:
        raise SetupError(
            f"the password file {path} must contain one line, the password, and nothing else"
        )
    return word
