"""The text of a plan: one fact a line, a single way to write each. Pure.

A line is a key, one space and a text, or the key alone for an empty text. A text of several lines
repeats the key. What has no line is empty. docs/signed-plans.md describes the format.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from bot.model.plain_text import check_printable
from bot.model.times import SECOND
from connectors.command import ApiCall, Command, Shell, SwitchLines
from connectors.visible_text import InvisibleCharacterError

Line: TypeAlias = tuple[str, str]


class PlanTextError(ValueError):
    """A plan that cannot be written as text, or a text that is not that of a plan."""


def write_lines(lines: Iterator[Line]) -> str:
    """Return the text of lines. Raises PlanTextError for a character that people cannot see."""
    return "".join(_write_line(key, text) for key, text in lines)


def _write_line(key: str, text: str) -> str:
    try:
        return f"{key} {check_printable(text)}\n" if text else f"{key}\n"
    except InvisibleCharacterError as error:
        raise PlanTextError(f"the plan cannot be signed: its line “{key}” {error}") from None


def write_text(key: str, text: str) -> Iterator[Line]:
    """Yield the lines of a text; none if it is empty."""
    for line in text.split("\n") if text else ():
        yield key, line


def write_optional(key: str, text: object) -> Iterator[Line]:
    """Yield one line; none for an empty text, zero or no."""
    if text:
        yield key, "yes" if text is True else str(text)


def write_time(key: str, microseconds: int) -> Line:
    """Return a time as seconds since 1970, UTC."""
    return key, str(microseconds // SECOND)


def write_command(command: Command, *, words: str, prefix: str = "") -> Iterator[Line]:
    """Yield the lines of a command.

    Args:
        words: The key of the words of a program.
        prefix: Of all other keys.
    """
    match command:
        case Shell():
            yield from ((words, word) for word in command.words)
            yield from write_text(f"{prefix}in", command.stdin)
            yield from write_optional(f"{prefix}fails-on", command.error_pattern)
            yield f"{prefix}deadline", str(command.deadline)
            yield from write_optional(f"{prefix}new-connection", command.new_connection)
        case ApiCall():
            yield f"{prefix}call", f"{command.method} {command.path}"
            yield from write_optional(f"{prefix}body", command.body)
            yield from write_optional(f"{prefix}wait-for", command.watched_path)
            yield from write_optional(f"{prefix}power-state", command.power_state)
            yield f"{prefix}deadline", str(command.deadline)
            yield f"{prefix}server", command.server
        case SwitchLines():
            if not command.lines:
                raise PlanTextError("the plan cannot be signed: a step enters no lines")
            yield from ((f"{prefix}enter", line) for line in command.lines)


class TextReader:
    """Reads lines in their order. What the writer would not write raises PlanTextError."""

    def __init__(self, text: str) -> None:
        self._lines = text.removesuffix("\n").split("\n")
        self._at = 0

    def has(self, *keys: str) -> bool:
        """Return whether the next line has one of these keys."""
        return self._at < len(self._lines) and self._lines[self._at].partition(" ")[0] in keys

    def take(self, key: str) -> str:
        """Return the text of the next line, which must have this key."""
        if not self.has(key):
            raise PlanTextError(f"line {self._at + 1} is not “{key}”")
        self._at += 1
        return self._lines[self._at - 1].partition(" ")[2]

    def take_all(self, key: str) -> tuple[str, ...]:
        """Return the texts of the next lines with this key."""
        taken: list[str] = []
        while self.has(key):
            taken.append(self.take(key))
        return tuple(taken)

    def take_text(self, key: str) -> str:
        return "\n".join(self.take_all(key))

    def take_optional(self, key: str) -> str:
        return self.take(key) if self.has(key) else ""

    def take_time(self, key: str) -> int:
        """Return a time in microseconds since 1970."""
        return int(self.take(key)) * SECOND

    def take_command(self, *, words: str, prefix: str = "") -> Command:
        """Return the command whose lines are next; see write_command()."""
        if argv := self.take_all(words):
            return Shell(
                argv,
                self.take_text(f"{prefix}in"),
                error_pattern=self.take_optional(f"{prefix}fails-on"),
                deadline=int(self.take(f"{prefix}deadline")),
                new_connection=bool(self.take_optional(f"{prefix}new-connection")),
            )
        if lines := self.take_all(f"{prefix}enter"):
            return SwitchLines(lines)
        method, _, path = self.take(f"{prefix}call").partition(" ")
        if method not in ("GET", "POST", "PATCH"):
            raise PlanTextError(f"line {self._at} is not a call")
        return ApiCall(
            path,
            method,
            self.take_optional(f"{prefix}body"),
            self.take_optional(f"{prefix}wait-for"),
            self.take_optional(f"{prefix}power-state"),
            int(self.take(f"{prefix}deadline")),
            self.take(f"{prefix}server"),
        )


def check_rewritten(text: str, rewritten: str, what: str) -> None:
    """Raise PlanTextError unless a text is exactly what the writer makes of what was read."""
    if text != rewritten:
        ours, theirs = rewritten.split("\n"), text.split("\n")
        place = next(
            (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False), 1) if a != b),
            min(len(ours), len(theirs)),
        )
        raise PlanTextError(f"this is not the text of a {what}: see line {place}")


def list_lines(text: str) -> Sequence[str]:
    """Return the lines of a text, without their ends."""
    return text.removesuffix("\n").split("\n")
