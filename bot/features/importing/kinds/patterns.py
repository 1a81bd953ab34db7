"""Regular expressions of Python that CEL and `sed -E` take for the same, line by line."""

import re
from collections.abc import Sequence

from bot.features.importing.drafts import Unclear
from runbooks._declared_parsers import compile_pattern

_IN_BRACKETS = r"""[A-Za-z0-9_ .,:;=/#"'$*+?()|@%<>~&!{}-]"""
# A ] that comes first is one of the signs.
_BRACKETS = rf"\[\^?+[\]^]?+{_IN_BRACKETS}*\]"
_ATOM = "|".join(
    (
        r"""[A-Za-z0-9_ ,=:/%@"'<>;#~&!.-]""",
        r"""\\[\\.\[\]()*+?^$|/{}"#=:@-]""",
        r"\\[dwsSt]",
        _BRACKETS,
    )
)
# Neither a repeat of a repeat, which may be a lazy one, nor an empty choice, nor ^ or $ in the
# middle of a line.
_PATTERN = re.compile(
    rf"(?!\|)(?:(?:{_ATOM})[*+?]?(?![*+?])|(?<![^(|])\^(?![*+?])|\$(?![^)|])"
    rf"|\((?![?*+|)])|(?<!\|)\)[*+?]?(?![*+?])|\|(?![|)*+?]|$))*"
)
_TOKEN = re.compile(rf"\\.|{_BRACKETS}|.", re.DOTALL)
# Modules read files as bytes, so that these are of ASCII. sed does not know \d.
_CLASSES = {r"\d": "[0-9]", r"\w": "[A-Za-z0-9_]"}
# A class that is alone in brackets is the class, also where sed would find a backslash.
_ALONE = re.compile(r"\\.|\[(\\[dwsS])\]")
_NOT_EMPTY = re.compile(rf"\+?(?:{_ATOM})(?![*?])")


def read_pattern(pattern: str) -> str:
    """Return a pattern that finds the same lines without their ends. Raises Unclear.

    Ansible looks for it in lines with their ends, which a blank and what is not a sign may match,
    and in bytes: a sign that is not of ASCII is two or more to it.
    """
    unclear = Unclear(f"the pattern {pattern[:80]!r} may mean something else to sed")
    pattern = _ALONE.sub(lambda one: one[1] or one[0], pattern)
    if not _PATTERN.fullmatch(pattern):
        raise unclear
    tokens = [*_TOKEN.finditer(pattern)]
    parts = [_read_part(one[0], pattern[one.end() :]) for one in tokens]
    # A line has one end: two parts may not both be it.
    if sum(part.endswith("|$)") for part in parts) > 1:
        raise unclear
    found = "".join(parts)
    try:
        compile_pattern(found)
    except ValueError:
        raise unclear from None
    return found


# Without what may match the end of a line, other signs than ASCII, or one of two things.
_REPLACED = re.compile(rf"\^?(?:(?:{_ATOM})[*+?]?(?![*+?])|\((?![?*+)])|(?<!\()\)(?![*+?]))+\$?")
_OPEN = re.compile(r"\\[dwsSt]|\[\^")
_REFERENCE = re.compile(r"\\(?:g<)?([1-9])(?:>|(?![0-9]))")


def read_replacement(pattern: str, new: str) -> tuple[str, str]:
    """Return a pattern that `grep -o` and `sed` find the same texts by as Python, and what is new.

    Ansible looks for it in a whole file. Raises Unclear.
    """
    unclear = Unclear(f"the pattern {pattern[:80]!r} may replace something else by sed")
    tokens = [one[0] for one in _TOKEN.finditer(pattern)]
    if not _REPLACED.fullmatch(pattern) or any(map(_OPEN.match, tokens)):
        raise unclear
    # The first of several that repeat decides what Python finds, and the longest text what sed
    # does. Both take all to the end of a line.
    repeats = sum(one in ("*", "+", "?") for one in tokens)
    if repeats > 1 and not re.search(r"(?<!\\)\.\*\$?$", pattern):
        raise unclear
    try:
        compile_pattern(pattern)
        if re.compile(pattern).search(""):
            raise unclear
    except (ValueError, re.error):
        raise unclear from None
    groups = _list_groups(tokens)

    def expand(found: re.Match[str]) -> str:
        text = groups[int(found[1]) - 1 : int(found[1])]
        if not text or text[0] is None:
            raise Unclear("what is new has parts of what it replaces")
        return text[0]

    filled = _REFERENCE.sub(expand, new)
    if "\\" in _REFERENCE.sub("", new) or "\n" in filled:
        raise Unclear("what is new has signs with a backslash, or more than one line")
    return pattern, filled


def _list_groups(parts: Sequence[str]) -> list[str | None]:
    """Return the text of each group that matches one text alone, and None for another."""
    found: list[str | None] = []
    within: list[int] = []
    for part in parts:
        match part:
            case "(":
                within.append(len(found))
                found.append("")
            case ")":
                within.pop()
            case _:
                is_text = len(part) == 1 and part not in ".*+?^$"
                plain = part[1:] if part[0] == "\\" else (part if is_text else None)
                for at in within:
                    before = found[at]
                    found[at] = None if before is None or plain is None else before + plain
    return found


def _read_part(part: str, rest: str) -> str:
    takes_end = part == r"\s" or (part.startswith("[^") and len(part) > 2)
    if takes_end and rest[:1] not in ("*", "?") and not _NOT_EMPTY.match(rest):
        return f"({part}|$)"
    return _CLASSES.get(part, part)


def escape(text: str) -> str:
    """Return a pattern that matches a text alone."""
    return re.sub(r"[][\\.^$*+?{}()|]", r"\\\g<0>", text).replace("\t", r"\t")


def escape_new(text: str) -> str:
    """Return a text as the new one of the command s/…/…/ of sed."""
    return re.sub(r"[\\&/]", r"\\\g<0>", text)


def delimit(pattern: str) -> str:
    """Return a pattern between slashes."""
    return re.sub(r"\\.|/", lambda one: r"\/" if one[0] == "/" else one[0], pattern)
