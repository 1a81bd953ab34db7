"""Text that people write: reasons and names. Pure.

Ordinary writing needs a few characters that people cannot see: Persian and Indic scripts a joiner
or non-joiner within words, and some emoji a joiner or tags between their parts. Any other control
or format character can hide or reorder what approvers read, so it is refused.
"""

import re
import unicodedata

from bot.model.errors import InvalidRequestError
from connectors.visible_text import InvisibleCharacterError, refuse_invisible

_JOINER_PATTERN = re.compile("[\u200c\u200d]")  # ZERO WIDTH NON-JOINER and ZERO WIDTH JOINER
# The flags of England, Scotland and Wales. https://www.unicode.org/reports/tr51/#Emoji_Tag_Sequences
_FLAG_PATTERN = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f")
# Reserved for emoji of later versions of Unicode than this Python's.
_EMOJI_PATTERN = re.compile("[\U0001f000-\U0001faff]")


def check_printable(text: str) -> str:
    """Return *text* unchanged.

    Raises:
        InvisibleCharacterError: it holds a line break or another character that people cannot see.
    """
    if not text.isprintable():
        ordinary = find_allowed_format_characters(text)
        refuse_invisible("".join(text[n] for n in range(len(text)) if n not in ordinary))
    return text


def join_to_one_line(text: str) -> str:
    """Return *text* on one line, each run of spaces, tabs and line breaks as one space.

    Raises:
        InvisibleCharacterError: it holds another character that people cannot see.
    """
    return check_printable(" ".join(text.split()))


def check_line(text: str, *, name: str, max_length: int) -> str:
    """Return *text* on one line. name: what it is, such as `the reason`.

    Raises:
        InvalidRequestError: it is too long, or holds another character that people cannot see.
    """
    try:
        line = join_to_one_line(text)
    except InvisibleCharacterError as error:
        raise InvalidRequestError(f"{name} {error}") from None
    if len(line) > max_length:
        raise InvalidRequestError(f"{name} has {len(line)} characters: the limit is {max_length}")
    return line


def find_allowed_format_characters(text: str) -> set[int]:
    """Return the indexes of the invisible characters that ordinary writing needs."""
    places = {
        found.start()
        for found in _JOINER_PATTERN.finditer(text)
        if _is_joiner_needed(text, found.start())
    }
    for found in (*_FLAG_PATTERN.finditer(text), *_EMOJI_PATTERN.finditer(text)):
        places.update(range(*found.span()))
    return places


def _is_joiner_needed(text: str, place: int) -> bool:
    """Return whether the characters around a joiner need one."""
    before, after = text[max(place - 1, 0) : place], text[place + 1 : place + 2]
    return _is_joinable_character(before) or (before.isalnum() and _is_joinable_character(after))


def _is_joinable_character(character: str) -> bool:
    """Return whether it is a letter, a mark or a symbol outside ASCII."""
    return not character.isascii() and unicodedata.category(character)[0] in "LMS"
