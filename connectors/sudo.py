"""What a login may do as root through sudo: rules that each dialect keeps beside its commands.

A rule is one program with all of its words. sudo joins the words of a command with blanks and
holds them against a POSIX regular expression (sudoers(5), since sudo 1.9.10; older ones take the
expression for plain words, and so let nobody in). There are two things to know about that:

The words of a command may be parted otherwise than its rule means. A pattern never takes a blank,
so that nothing can be added; but two words may arrive as one. What that does to the program is
for the rule's author to think of.

A script in one word could be cut short at each of its blanks, and the rest of it become its
arguments. So a script stands in braces, or is a single `if`: every beginning of it is then an
error to the shell, which reads all of it before it acts. No I/O.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.command import Setting, clean

# What means the same in POSIX extended regular expressions and in Python's, and takes no blank.
_CLASS = r"\[(?:[A-Za-z0-9]-[A-Za-z0-9]|\]?[A-Za-z0-9_.:,=@/+%!]+)*-?\]"
_PIECE = rf"(?:{_CLASS}|\\[.^$*+?{{}}()|\[\]\\#]|[A-Za-z0-9_/:=,@%-])"
_PATTERN = re.compile(rf"(?:{_PIECE}|\((?!\?)|[)|]|[*+?]|\{{\d+(?:,\d*)?\}})+", re.ASCII)
# Besides what is special to a regular expression, sudoers would begin a comment with "#".
_SPECIAL = re.compile(r"[][\\.^$*+?{}()|#]")


def _check(pattern: str, *, begins_word: bool) -> None:
    if not _PATTERN.fullmatch(pattern):
        raise ValueError(f"{pattern!r} is no pattern that sudo and we would read alike")
    compiled = re.compile(pattern, re.ASCII)
    if begins_word and (compiled.match("-") or compiled.fullmatch("")):
        raise ValueError(f"{pattern!r} would let an option in, or nothing at all")


@dataclass(frozen=True)
class Fits:
    """Any one word that fits a regular expression between two texts that are meant as they are."""

    pattern: str
    before: str = ""
    after: str = ""

    def __post_init__(self) -> None:
        _check(self.pattern, begins_word=not self.before)

    @property
    def whole(self) -> str:
        return f"{_literal(self.before)}({self.pattern}){_literal(self.after)}"


@dataclass(frozen=True)
class Several:
    """Any number of words, also none, that each fit a regular expression as a whole."""

    pattern: str

    def __post_init__(self) -> None:
        _check(self.pattern, begins_word=True)


RuleWord = str | Setting | Fits | Several


class SudoRule:
    """One command that may run as root. Words that are no patterns are meant as they stand.

    program: its absolute path. Where /usr/sbin and /sbin are two places, either is meant.
    beyond: what somebody with the login's key could do with it that no runbook does; "" where
    there is nothing. Such a rule is for people to decide on.
    """

    def __init__(self, program: str, *words: RuleWord, beyond: str = "") -> None:
        if not re.fullmatch(r"(/[\w.-]+)+", program, re.ASCII):
            raise ValueError(f"{program!r} is no absolute path of a program")
        for word in words:
            if isinstance(word, str) and not (clean(word) and word.isascii()):
                raise ValueError(f"{word!r} cannot be written in sudoers")
        self.program = program
        self.words = words
        self.beyond = beyond

    @property
    def paths(self) -> tuple[str, ...]:
        """Return where the program may lie."""
        without = self.program.removeprefix("/usr")
        return (self.program, without) if re.match(r"/s?bin/", without) else (self.program,)

    @property
    def script(self) -> str | None:
        """Return the script that the rule hands to a shell, if it does."""
        is_script = self.program.endswith("/sh") and self.words[:1] == ("-c",)
        return str(self.words[1]) if is_script else None

    def pattern(self, settings: Mapping[str, str]) -> str:
        """Return the regular expression for all words, as one host's settings have them.

        Raises BadSetting.
        """
        parts: list[str] = []
        for word in self.words:
            gap = " " if parts else ""
            match word:
                case Fits():
                    parts.append(gap + word.whole)
                case Several():
                    parts.append(f"({gap}({word.pattern}))*")
                case Setting():
                    parts.append(gap + _literal(word.resolved(settings)))
                case _:
                    parts.append(gap + _literal(word))
        return f"^{''.join(parts)}$"

    def line(self, user: str, settings: Mapping[str, str]) -> str:
        """Return the rule as sudoers has it."""
        words = self.pattern(settings) if self.words else '""'
        commands = ", ".join(f"{path} {words}" for path in self.paths)
        return f"{user} ALL=(root) NOPASSWD: {commands}"

    def allows(self, words: Sequence[str], settings: Mapping[str, str]) -> bool:
        """Tell whether sudo would let these words through, the first naming the program."""
        program, *rest = words
        if program not in (self.program.rpartition("/")[2], *self.paths):
            return False
        return re.fullmatch(self.pattern(settings), " ".join(rest), re.ASCII) is not None

    def __repr__(self) -> str:
        return f"SudoRule({self.program} {self.pattern({})})"


def _literal(word: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", word)
