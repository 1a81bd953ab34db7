"""Sudo rules: what a login may run as root. Each connector has rules for its commands. No I/O.

A rule is one program with all of its words. sudo joins the words of a command with blanks and
matches them against a POSIX regular expression (sudoers(5), since sudo 1.9.10; older versions take
the expression as plain words, and so allow nothing). Two consequences:

A command can split its words differently from its rule. A pattern never matches a blank, so words
cannot be added; but two words may arrive as one. The author of a rule must consider what that does
to the program.

sudo accepts no expression of more than 1024 characters. A longer rule is written as plain words,
in which sudo supports sets of characters too, but no alternatives and no repetition.

A script in one word could be split at each of its blanks, and its rest become arguments. So a
script is in braces: every beginning of it is a syntax error, since the shell parses all of it
first. A script that is installed as a file needs none of this: its rule has only its arguments.
"""

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from connectors.command import Setting
from connectors.script import Script
from connectors.visible_text import refuse_invisible

# Syntax with the same meaning in POSIX extended and in Python's regular expressions, without
# blanks.
_CLASS = r"\[(?:[A-Za-z0-9]-[A-Za-z0-9]|\]?[A-Za-z0-9_.:,=@/+%!~]+)*-?\]"
_PIECE = rf"(?:{_CLASS}|\\[.^$*+?{{}}()|\[\]\\#]|[A-Za-z0-9_/:=,@%-])"
_PATTERN = re.compile(rf"(?:{_PIECE}|\((?!\?)|[)|]|[*+?]|\{{\d+(?:,\d*)?\}})+", re.ASCII)
_PATH = re.compile(r"(/[\w.-]+)+", re.ASCII)
_LONGEST = 1000
_COUNTED = re.compile(r"(\[[^]]+\])\{(\d+)\}")
# Special characters of regular expressions, and "#", which begins a comment in sudoers.
_SPECIAL = re.compile(r"[][\\.^$*+?{}()|#]")


class RuleTooLongError(ValueError):
    """The rule is too long for sudo: its script must be installed on the host."""


def _refuse_unsafe_pattern(pattern: str, *, begins_word: bool) -> None:
    if not _PATTERN.fullmatch(pattern):
        raise ValueError(f"{pattern!r} may have another meaning to sudo than to Python")
    compiled = re.compile(pattern, re.ASCII)
    options = ("-", "--", *(f"-{character}" * 2 for character in string.ascii_letters))
    if (begins_word and any(map(compiled.match, options))) or compiled.fullmatch(""):
        raise ValueError(f"{pattern!r} would match an option, or an empty word")


def make_range_pattern(least: int, most: int) -> str:
    """Return a pattern for the whole numbers from *least* to *most*, without leading zeros."""
    if not 0 <= least <= most:
        raise ValueError(f"{least} to {most} is not a range of whole numbers from 0")
    parts: list[str] = []
    low = least
    while low <= most:
        # The largest range of numbers that differ in one digit and all digits after it.
        size = 1
        while low and low % (size * 10) == 0 and low + size * 10 - 1 <= most:
            size *= 10
        first = low // size % 10
        last = min(9, first + (most - low + 1) // size - 1)
        prefix = str(low // size // 10 or "")
        rest = len(str(size)) - 1
        digit = f"[{first}-{last}]" if first < last else str(first)
        parts.append(prefix + digit + (f"[0-9]{{{rest}}}" if rest else ""))
        low += (last - first + 1) * size
    return "|".join(parts)


_QUAD = rf"({make_range_pattern(0, 255)})(\.({make_range_pattern(0, 255)})){{3}}"
_GROUP = "[0-9a-f]{1,4}"
# An address as Python prints it, in lower case and without a zone.
ADDRESS = "|".join(
    (
        rf"(::ffff:)?{_QUAD}",
        rf"({_GROUP}:){{7}}{_GROUP}",
        *(rf"({_GROUP}:){{1,{7 - after}}}(:{_GROUP}){{1,{after}}}" for after in range(1, 7)),
        rf"({_GROUP}:){{1,7}}:",
        rf":((:{_GROUP}){{1,7}}|:)",
    )
)


@dataclass(frozen=True)
class WordPattern:
    """One word that matches a regular expression between two literal texts."""

    pattern: str
    """A regular expression without blanks."""
    prefix: str = ""
    """Literal text before the match."""
    suffix: str = ""
    """Literal text after the match."""
    has_blanks: bool = False
    """Whether it may contain blanks, as the first character of sets in its pattern.

    Only the last word of a script that counts its arguments may.
    """

    def __post_init__(self) -> None:
        pattern = self.pattern.replace("[ ", "[") if self.has_blanks else self.pattern
        _refuse_unsafe_pattern(pattern, begins_word=not self.prefix)

    @property
    def expression(self) -> str:
        return f"{_escape_pattern(self.prefix)}({self.pattern}){_escape_pattern(self.suffix)}"

    @property
    def wildcard(self) -> str:
        """The word as a sudoers wildcard. Raises RuleTooLongError if there is none."""
        counted = _COUNTED.fullmatch(self.pattern)
        if counted is None:
            raise RuleTooLongError(f"the rule is too long for the pattern {self.pattern!r}")
        return _escape_word(self.prefix) + counted[1] * int(counted[2]) + _escape_word(self.suffix)


@dataclass(frozen=True)
class RepeatedPattern:
    """Any number of words, also none, each of which matches a regular expression."""

    pattern: str

    def __post_init__(self) -> None:
        _refuse_unsafe_pattern(self.pattern, begins_word=True)


def make_example(pattern: str) -> str:
    """Return a short text that matches a pattern of a rule."""
    text, place = _make_sample(pattern, 0)
    if place != len(pattern) or not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError(f"cannot make an example of {pattern!r}")
    return text


def _make_sample(pattern: str, place: int) -> tuple[str, int]:
    """Return a text that matches the first alternative, and where the group ends."""
    taken, text = "", None
    while place < len(pattern) and pattern[place] != ")":
        if pattern[place] == "|":
            text, taken = taken if text is None else text, ""
            place += 1
            continue
        if pattern[place] == "(":
            atom, place = _make_sample(pattern, place + 1)
            place += 1
        elif pattern[place] == "[":
            end = pattern.index("]", place + 2)
            atom = pattern[place + 1 : end].lstrip(" ")[0]
            place = end + 1
        elif pattern[place] == "\\":
            atom, place = pattern[place + 1], place + 2
        else:
            atom, place = pattern[place], place + 1
        times, place = _parse_repetition(pattern, place)
        taken += atom * times
    return (taken if text is None else text), place


def _parse_repetition(pattern: str, place: int) -> tuple[int, int]:
    """Return the minimum of repetitions of the atom before *place*, and where they end."""
    if pattern[place : place + 1] in ("*", "?"):
        return 0, place + 1
    if pattern[place : place + 1] == "+":
        return 1, place + 1
    counted = re.compile(r"\{(\d+)(?:,\d*)?\}").match(pattern, place)
    return (int(counted[1]), counted.end()) if counted else (1, place)


RuleWord = str | Setting | WordPattern | RepeatedPattern


class SudoRule:
    """One command that a login may run as root.

    Args:
        program: its absolute path; /usr/sbin and /sbin are both allowed where they differ. Or a
            script, which a shell runs; see `for_installed_scripts`.
        words: its arguments. Strings are literal.
        read_only: whether it is for a query and changes nothing.
        risk: what someone with the login's key could do with it that no runbook does; "" for
            nothing.
        optional: whether its runbooks work where the program is not installed.
        enrolled: whether only hosts that check signatures need it.
    """

    def __init__(
        self,
        program: str | Setting | Script,
        *words: RuleWord | Script,
        read_only: bool = False,
        risk: str = "",
        optional: bool = False,
        enrolled: bool = False,
    ) -> None:
        self.read_only = read_only
        self.enrolled = enrolled
        self.optional = optional
        self.risk = risk
        self.script = program if isinstance(program, Script) else None
        self._given = words
        self.scripts = tuple(word for word in (program, *words) if isinstance(word, Script))
        plain = _expand_scripts(words, installed=False)
        self.program: str | Setting
        self.words: tuple[RuleWord, ...]
        if isinstance(program, Script):
            self.program = "/usr/bin/sh"
            self.words = ("-c", program.text, "keyturn", *plain)
        else:
            self.program, self.words = program, plain
        if not _PATH.fullmatch(str(self.program)):
            raise ValueError(f"{program!r} is not the absolute path of a program")
        for word in self.words:
            if isinstance(word, str) and not (refuse_invisible(word) and word.isascii()):
                raise ValueError(f"{word!r} cannot be written in sudoers")

    @property
    def for_installed_scripts(self) -> "SudoRule":
        """Return the same rule for a host where scripts are installed as files."""
        if self.script is None:
            return self
        words = _expand_scripts(self._given, installed=True)
        rule = SudoRule(self.script.path, *words, read_only=self.read_only, risk=self.risk)
        rule.scripts, rule.enrolled = self.scripts, self.enrolled
        return rule

    def list_paths(self, settings: Mapping[str, str]) -> tuple[str, ...]:
        """Return the paths of the program on one host. Raises SettingError."""
        if isinstance(self.program, Setting):
            return (self.program.resolve(settings),)
        without = self.program.removeprefix("/usr")
        return (self.program, without) if re.match(r"/s?bin/", without) else (self.program,)

    def make_example(self, settings: Mapping[str, str]) -> tuple[str, ...]:
        """Return an example of a command that this rule allows, as a host runs it."""
        words = [str(self.program) if self.script else self.list_paths(settings)[0]]
        if isinstance(self.program, str) and not self.script and self.scripts == ():
            # sudo looks the name up, since /usr/sbin and /sbin may be one directory or two.
            words = [self.program.rpartition("/")[2]]
        for word in self.words:
            match word:
                case WordPattern():
                    words.append(word.prefix + make_example(word.pattern) + word.suffix)
                case Setting():
                    words.append(word.resolve(settings))
                case str():
                    words.append(word)
                case RepeatedPattern():
                    pass
        return tuple(words)

    def make_pattern(self, settings: Mapping[str, str]) -> str:
        """Return the regular expression of all words for one host. Raises SettingError."""
        parts: list[str] = []
        for word in self.words:
            gap = " " if parts else ""
            match word:
                case WordPattern():
                    parts.append(gap + word.expression)
                case RepeatedPattern():
                    parts.append(f"({gap}({word.pattern}))*")
                case Setting():
                    parts.append(gap + _escape_pattern(word.resolve(settings)))
                case _:
                    parts.append(gap + _escape_pattern(word))
        return f"^{''.join(parts)}$"

    def format_line(self, user: str, settings: Mapping[str, str]) -> str:
        """Return the rule as a line of sudoers. Raises RuleTooLongError or SettingError."""
        words = self.make_pattern(settings) if self.words else '""'
        if len(words) > _LONGEST:
            words = " ".join(self._list_wildcards(settings))
        commands = ", ".join(f"{path} {words}" for path in self.list_paths(settings))
        return f"{user} ALL=(root) NOPASSWD: {commands}"

    def is_allowed(self, words: Sequence[str], settings: Mapping[str, str]) -> bool:
        """Return whether sudo would allow these words, the first of which is the program."""
        program, *rest = words
        programs, pattern = _compile_rule(self, tuple(settings.items()))
        return program in programs and pattern.fullmatch(" ".join(rest)) is not None

    def _list_wildcards(self, settings: Mapping[str, str]) -> Iterator[str]:
        for word in self.words:
            match word:
                case WordPattern():
                    yield word.wildcard
                case RepeatedPattern():
                    raise RuleTooLongError(
                        f"the rule is too long for the pattern {word.pattern!r}"
                    )
                case Setting():
                    yield _escape_word(word.resolve(settings))
                case _:
                    yield _escape_word(word)

    def __repr__(self) -> str:
        return f"SudoRule({self.program} {self.make_pattern({})})"


@lru_cache(maxsize=1000)
def _compile_rule(
    rule: SudoRule, settings: tuple[tuple[str, str], ...]
) -> tuple[frozenset[str], re.Pattern[str]]:
    """Return the names of a rule's program, and the pattern of its arguments, for one host."""
    paths = rule.list_paths(dict(settings))
    names = frozenset((*paths, *(path.rpartition("/")[2] for path in paths)))
    return names, re.compile(rule.make_pattern(dict(settings)), re.ASCII)


def _expand_scripts(
    words: Iterable[RuleWord | Script], *, installed: bool
) -> tuple[RuleWord, ...]:
    return tuple(
        word.format_argument(installed=installed) if isinstance(word, Script) else word
        for word in words
    )


@cache
def _escape_pattern(word: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", word)


def _escape_word(word: str) -> str:
    """Escape a word so that sudoers takes it literally."""
    # A backslash is parsed twice: by sudoers, and when it is matched with a command.
    word = word.replace("\\", "\\\\\\\\")
    return re.sub(r"[*?\[\],:=# ]", r"\\\g<0>", word)
