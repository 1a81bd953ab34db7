"""Text made safe to show, and sentences put together. Pure."""

import re
import unicodedata

from bot.model.plain_text import find_allowed_format_characters

# Control, format (bidi, zero-width), surrogates, and line or paragraph separators.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def escape_control(text: str) -> str:
    """Return *text* with every acting character but newline and tab as `\\x1b` or `\\u202e`.

    Joiners and tags stay where a script or an emoji needs them.
    """
    if text.isascii() and text.isprintable():
        return text
    ordinary = find_allowed_format_characters(text)
    return "".join(
        character if place in ordinary else _escape_character(character)
        for place, character in enumerate(text)
    )


def escape_to_one_line(text: str) -> str:
    """Return *text* on one line, newlines and tabs spelt out as well."""
    return escape_control(text).replace("\n", "\\n").replace("\t", "\\t")


def _escape_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _INVISIBLE_CATEGORIES:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# With what it says begins that is no name: of those, `lb1` and `dora` stay as they are written.
_SENTENCE_OPENINGS = re.compile(
    r"(a|an|another|around|break-glass (?=is|was|applies)|delegation|describe|each|enter|explain|"
    r"give|glass|grant|how|if|it|no|nobody|not|nothing|on|only|resolve|run|say|schedule|someone|"
    r"somebody|stop|that|the|there|these|this|those|token|type|what|which|whom|"
    r"unknown|values|write|you|your)\b(?![-=])"
)


def capitalise_sentence(text: str) -> str:
    """Return it with a capital, unless it begins with a name, such as that of a host."""
    return text[:1].upper() + text[1:] if _SENTENCE_OPENINGS.match(text) else text


# A word or the number of a run, and no placeholder such as HOST, nor a pattern or an address.
_LAST_WORD_PATTERN = re.compile(r"[(“‘'\"]?[a-z][\w’'-]*[)”’'\"]?|\d{1,9}")


def format_sentence(text: str) -> str:
    """Return what a person is told as a sentence: `there is no host 'lb9' in the inventory`."""
    last = text.rsplit(None, 1)[-1] if text else ""
    return capitalise_sentence(text) + "." * bool(_LAST_WORD_PATTERN.fullmatch(last))


def format_count(number: int, singular: str, *, plural: str = "") -> str:
    """Return `1 run` or `7 runs`. many: where more than one is no `s` behind it."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"
