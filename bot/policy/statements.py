"""Statements: where in a file of rules each of them stands. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# What Cedar's own parser takes as one: a string, a remark, the end of a rule, and all the rest.
_PIECES = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|;|[^"/;]+|.', re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """One rule as it is written. line: of its first word, from 1."""

    line: int
    text: str

    def line_of(self, word: str) -> int:
        """Return the line on which *word* first stands, or the first line."""
        before, found, _ = self.text.partition(word)
        return self.line + before.count("\n") if found else self.line


def statements(text: str) -> Sequence[Statement]:
    """Return every rule of the text, in order; the last may lack its semicolon."""
    found: list[Statement] = []
    kept, line, start = "", 1, 1
    for piece in _PIECES.findall(text):
        said = "" if piece.startswith("//") else piece
        if not kept:
            # What stands before a rule is not a part of it.
            said = said.lstrip()
            start = line + piece[: len(piece) - len(said)].count("\n")
        line += piece.count("\n")
        kept += said
        if piece == ";":
            found.append(Statement(start, kept))
            kept = ""
    return [*found, Statement(start, kept)] if kept else found
