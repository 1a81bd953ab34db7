"""Scripts that hosts run as root: as words of a command, or as installed files. No I/O.

An installed file belongs to root and has its digest in its name: who may run that name can run
only this text. A login's sudo rule then has the file's name instead of the text.
"""

import hashlib
import re
from dataclasses import dataclass

SCRIPTS_DIRECTORY = "/usr/local/lib/keyturn"


@dataclass(frozen=True)
class Script:
    """One line of POSIX shell. What differs between runs is passed as arguments."""

    name: str
    """What it does; part of its file's name."""
    body: str
    """The shell code, without braces around it."""
    argument_count: int | None = None
    """How many arguments it has; None for any number.

    The script checks this first: sudo joins words with blanks, so two of them may arrive as one.
    """

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", self.name):
            raise ValueError(f"{self.name!r} cannot be the name of a script's file")
        if not self.body.isascii() or not self.body.isprintable():
            raise ValueError(f"the script {self.name} is not one line of plain characters")

    @property
    def text(self) -> str:
        """The script for `sh -c`, to be given `keyturn` before its arguments."""
        if self.argument_count is None:
            return f"{{ {self.body}; }}"
        return f'{{ [ "$0 $#" = "keyturn {self.argument_count}" ] || exit; {self.body}; }}'

    @property
    def file_text(self) -> str:
        """The content of its installed file."""
        count = (
            "" if self.argument_count is None else f'[ "$#" = {self.argument_count} ] || exit\n'
        )
        return f"#!/bin/sh\n{count}{self.body}\n"

    @property
    def path(self) -> str:
        """The path of its installed file, with the digest of its content."""
        digest = hashlib.sha256(self.file_text.encode()).hexdigest()
        return f"{SCRIPTS_DIRECTORY}/{self.name}-{digest[:12]}"

    def format_argument(self, *, installed: bool) -> str:
        """Return the text that another script passes to `sh -c` to run this one."""
        return f'exec {self.path} "$@"' if installed else self.text

    def __str__(self) -> str:
        return self.text
