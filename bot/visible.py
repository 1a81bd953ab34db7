"""Text from hosts and people made visible: what a terminal or browser would act on is spelt out.

One renderer for every sink; each sink still escapes for its own markup. Pure.
"""

import unicodedata

from bot.text import find_ordinary_format

# Control, format (bidi, zero-width), surrogates, and line or paragraph separators.
_ACTING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """Return *text* with every acting character but newline and tab as `\\x1b` or `\\u202e`.

    Joiners and tags stay where a script or an emoji needs them.
    """
    if text.isascii() and text.isprintable():
        return text
    ordinary = find_ordinary_format(text)
    return "".join(
        character if place in ordinary else _spelt(character)
        for place, character in enumerate(text)
    )


def one_line(text: str) -> str:
    """Return *text* on one line, newlines and tabs spelt out as well."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _spelt(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _ACTING:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
