"""Scripts that hosts run as root: as words of a command, or as installed files.

Their code is in `connectors/scripts/NAME.sh`, for people and for shellcheck. It is sent as one
line without comments, since a sudo rule cannot hold a line end.

An installed file belongs to root and has its digest in its name: who may run that name can run
only this text. A login's sudo rule then has the file's name instead of the text.
"""

import hashlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

SCRIPTS_DIRECTORY = "/usr/local/lib/keyturn"

_INCLUDE = re.compile(r"\. \./([a-z-]+)\.sh")
# After such a line, the next one continues a command: `then`, `||`, or the pattern of a case.
_IS_OPEN = re.compile(r"(.*\s)?(then|do|else|in|[{(])|.*\$\(|.*[;&|]|[^()]+\)")


def load_code(name: str, **constants: str | int) -> str:
    """Return the shell code of connectors/scripts/NAME.sh, with the files that it includes.

    constants: variables that the code uses.
    """
    values = [f"{key}={shlex.quote(str(value))}" for key, value in constants.items()]
    text = files("connectors").joinpath("scripts", f"{name}.sh").read_text("ascii")
    lines = [
        load_code(included[1]) if (included := _INCLUDE.fullmatch(line)) else line
        for line in text.splitlines()
    ]
    return "\n".join([*values, *lines])


def join_lines(code: str) -> str:
    """Return shell code as one line without comments.

    Raises ValueError for a comment beside code or within quotes, and for double quotes around a
    line end.
    """
    joined = last = ""
    for line, is_in_quotes in _list_code_lines(code):
        if last.endswith("\\"):
            joined = f"{joined[:-1]}{line}"
        elif not last or is_in_quotes or _IS_OPEN.fullmatch(last) or line.startswith(";;"):
            joined = f"{joined} {line}".lstrip()
        else:
            joined = f"{joined}; {line}"
        last = line
    return joined


def _list_code_lines(code: str) -> Iterator[tuple[str, bool]]:
    """Yield each line with code, and whether it begins within single quotes."""
    is_in_quotes = False
    for line in map(str.strip, code.splitlines()):
        is_comment = line.startswith("#")
        if is_comment and is_in_quotes:
            raise ValueError(f"a comment cannot be within quotes: {line!r}")
        if line and not is_comment:
            yield line, is_in_quotes
            is_in_quotes = _ends_in_quotes(line, begins_in_quotes=is_in_quotes)


def _ends_in_quotes(line: str, *, begins_in_quotes: bool) -> bool:
    quote = "'" if begins_in_quotes else ""
    before = ""
    for character in line:
        if before == "\\" and quote != "'":
            before = ""
            continue
        if character in ("'", '"') and quote in ("", character):
            quote = "" if quote else character
        elif character == "#" and not quote and before in (" ", ";"):
            raise ValueError(f"a comment needs a line of its own: {line!r}")
        before = character
    if quote == '"':
        raise ValueError(f"double quotes must end on their line: {line!r}")
    return bool(quote)


@dataclass(frozen=True)
class Script:
    """POSIX shell code. What differs between runs is passed as arguments."""

    name: str
    """What it does; part of its file's name."""
    code: str
    """Its lines, see `join_lines`."""
    argument_count: int | None = None
    """How many arguments it has; None for any number.

    The script checks this first: sudo joins words with blanks, so two of them may arrive as one.
    """

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", self.name):
            raise ValueError(f"{self.name!r} cannot be the name of a script's file")
        if not self.line.isascii() or not self.line.isprintable():
            raise ValueError(f"the script {self.name} has other than plain characters")

    @cached_property
    def line(self) -> str:
        """The code as one line."""
        return join_lines(self.code)

    @property
    def text(self) -> str:
        """The script for `sh -c`, to be given `keyturn` before its arguments."""
        if self.argument_count is None:
            return f"{{ {self.line}; }}"
        return f'{{ [ "$0 $#" = "keyturn {self.argument_count}" ] || exit; {self.line}; }}'

    @property
    def file_text(self) -> str:
        """The content of its installed file."""
        count = (
            "" if self.argument_count is None else f'[ "$#" = {self.argument_count} ] || exit\n'
        )
        return f"#!/bin/sh\n{count}{self.code}\n"

    @property
    def path(self) -> str:
        """The path of its installed file, with the digest of its content."""
        digest = hashlib.sha256(self.file_text.encode()).hexdigest()
        return f"{SCRIPTS_DIRECTORY}/{self.name}-{digest[:12]}"

    def format_argument(self, *, installed: bool) -> str:
        """Return what another script is passed to run this one: its path, or its text."""
        return self.path if installed else self.text

    def __str__(self) -> str:
        return self.text


def load_script(name: str, *, argument_count: int | None = None, **constants: str | int) -> Script:
    """Return the script of connectors/scripts/NAME.sh. constants: see `load_code`."""
    return Script(name, load_code(name, **constants), argument_count)
