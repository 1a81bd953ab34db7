"""Texts with characters that people cannot see: refused, or shown as escapes. Pure."""

import unicodedata

# Control, format, surrogate, private and unassigned characters, and line or paragraph separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class InvisibleCharacterError(ValueError):
    """A value holds a character that people cannot see and that programs may act on."""


def refuse_invisible(text: str) -> str:
    """Return *text* unchanged, or raise InvisibleCharacterError for its first such character."""
    # A printable text has no invisible character, so most texts need no loop.
    if text.isprintable():
        return text
    for character in text:
        if unicodedata.category(character) in _INVISIBLE:
            name = unicodedata.name(character, "a control character")
            raise InvisibleCharacterError(
                f"holds the invisible character U+{ord(character):04X} ({name}): remove it"
            )
    return text


def quote_text(text: object) -> str:
    """Return *text* in single quotes, with unprintable characters as escapes."""
    return f"'{''.join(map(_escape_unprintable, str(text)))}'"


def _escape_unprintable(character: str) -> str:
    # Every kind of space stays a space, also a no-break space.
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()
