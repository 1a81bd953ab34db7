"""Escape text for display, and format sentences and counts. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from bot.model.plain_text import find_allowed_format_characters

# Control, format (bidi, zero-width), surrogates, and line or paragraph separators.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def escape_control(text: str) -> str:
    """Escape control and format characters, except newline and tab, as `\\x1b` or `\\u202e`.

    Joiners and tags are kept where a script or an emoji needs them.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    allowed = find_allowed_format_characters(text)
    return "".join(
        character if index in allowed else _escape_character(character)
        for index, character in enumerate(text)
    )


def escape_to_one_line(text: str) -> str:
    """Return *text* on one line, with newlines and tabs escaped too."""
    return escape_control(text).replace("\n", "\\n").replace("\t", "\\t")


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _escape_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _INVISIBLE_CATEGORIES:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# First words of messages that are not names: names such as `lb1` and `dora` keep their case.
_SENTENCE_OPENINGS = re.compile(
    r"(a|an|another|approving|around|break-glass (?=is|was|applies)|changes|choose|confirm|"
    r"cron is|delegation|describe|each|enter|explain|give|grant|host (?=begins|holds)|how|if|it|"
    r"its|name|no|not|nothing|on|only|others|override|reading|resolve|run|say|schedule|separate|"
    r"since is|someone|starts as|state|step (?=\d)|stop|that|the|there|these|this|those|token|"
    r"too|type|unknown|values|waits (?=for)|what|which|whom|write|you|your)\b(?![-=])"
)


def fold_to_ascii(text: str) -> str:
    """Return a text in lower case, with letters instead of accented ones and nothing else."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()


def capitalise_sentence(text: str) -> str:
    """Capitalise the first letter, unless the text starts with a name, such as that of a host."""
    return text[:1].upper() + text[1:] if _SENTENCE_OPENINGS.match(text) else text


# A word or the number of a run, but not a placeholder such as HOST, a pattern or an address.
_LAST_WORD_PATTERN = re.compile(r"[(“‘'\"]?[a-z][\w’'-]*[)”’'\"]?|\d{1,9}")


def format_sentence(text: str) -> str:
    """Return a message as a sentence, with a capital and a full stop."""
    last = text.rsplit(None, 1)[-1] if text else ""
    return capitalise_sentence(text) + "." * bool(_LAST_WORD_PATTERN.fullmatch(last))


def format_count(number: int, singular: str, *, plural: str = "") -> str:
    """Return `1 run` or `7 runs`. plural: for nouns whose plural does not end in `s`."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


# More lines than the page shows without scrolling.
_MAX_SHORT_LINES = 16


def describe_length(command: object) -> str:
    """Return `Script of 48 lines` for a command that is long to read; empty for a short one."""
    count = len(str(command).splitlines())
    return f"Script of {count} lines" if count > _MAX_SHORT_LINES else ""


def join_names(names: Iterable[str], last: str = "and") -> str:
    """Return `a, b and c`."""
    *front, end = list(names) or [""]
    return f"{', '.join(front)} {last} {end}" if front else end
