"""Regular expressions of Python that CEL and `sed -E` take for the same, line by line."""

import re

from bot.features.importing.drafts import Unclear
from runbooks._declared_parsers import compile_pattern

_IN_BRACKETS = r"""[A-Za-z0-9_ .,:;=/#"'$*+?()|@%<>~&!{}-]"""
# A ] that comes first is one of the signs.
_BRACKETS = rf"\[\^?+[\]^]?+{_IN_BRACKETS}*\]"
_ATOM = "|".join(
    (
        r"""[A-Za-z0-9_ ,=:/%@"'<>;#~&!.-]""",
        r"""\\[\\.\[\]()*+?^$|/{}"#=:@-]""",
        r"\\[dwsS]",
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
_NOT_EMPTY = re.compile(rf"\+?(?:{_ATOM})(?![*?])")


def read_pattern(pattern: str) -> str:
    """Return a pattern that finds the same lines without their ends. Raises Unclear.

    Ansible looks for it in lines with their ends, which a blank and what is not a sign may match,
    and in bytes: a sign that is not of ASCII is two or more to it.
    """
    unclear = Unclear(f"the pattern {pattern[:80]!r} may mean something else to sed")
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


def _read_part(part: str, rest: str) -> str:
    takes_end = part == r"\s" or (part.startswith("[^") and len(part) > 2)
    if takes_end and rest[:1] not in ("*", "?") and not _NOT_EMPTY.match(rest):
        return f"({part}|$)"
    return _CLASSES.get(part, part)


def escape(text: str) -> str:
    """Return a pattern that matches a text alone."""
    return re.sub(r"[][\\.^$*+?{}()|]", r"\\\g<0>", text)


def delimit(pattern: str) -> str:
    """Return a pattern between slashes."""
    return re.sub(r"\\.|/", lambda one: r"\/" if one[0] == "/" else one[0], pattern)
