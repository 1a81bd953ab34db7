"""A script that a host runs as root: in the words of a command, or as a file that lies there.

As a file it is root's, and its name holds its digest: whoever may run that name runs this text. A
login's sudo rule then names the file, and no longer holds the text. No I/O.
"""

import hashlib
import re
from dataclasses import dataclass

SCRIPTS_DIRECTORY = "/usr/local/lib/keyturn"


@dataclass(frozen=True)
class Script:
    """One line of POSIX shell without braces around it; what differs reaches it as arguments.

    name: what it is for, part of its file's name. words: how many arguments it takes, which it
    counts itself before anything else: sudo joins words with blanks, so that two of them may
    arrive as one. None for any number.
    """

    name: str
    body: str
    argument_count: int | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", self.name):
            raise ValueError(f"{self.name!r} is no name for a script's file")
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
        """What the file holds."""
        count = (
            "" if self.argument_count is None else f'[ "$#" = {self.argument_count} ] || exit\n'
        )
        return f"#!/bin/sh\n{count}{self.body}\n"

    @property
    def path(self) -> str:
        digest = hashlib.sha256(self.file_text.encode()).hexdigest()
        return f"{SCRIPTS_DIRECTORY}/{self.name}-{digest[:12]}"

    def format_argument(self, *, installed: bool) -> str:
        """Return what another script hands to `sh -c` so that this one runs."""
        return f'exec {self.path} "$@"' if installed else self.text

    def __str__(self) -> str:
        return self.text
