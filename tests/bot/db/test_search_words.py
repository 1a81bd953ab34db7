"""The words that runs are found by."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.db import search_words

_BETWEEN = re.compile(r"[\s\"'`(){}\[\]<>,;|\0]+")
_EDGE = ".:/-=_!?*#…–—“”‘’"
# All that means something, and some letters that change their form.
_LETTERS = "ab1é²ﬁß.:/-=_!?*#…–—“”‘’ \t\n\"'`(){}[]<>,;|\0"


def _split_step_by_step(typed: str) -> list[str]:
    """Do step by step what is done by one pattern."""
    plain = unicodedata.normalize("NFKC", typed).lower()
    whole = [part.strip(_EDGE)[: search_words.LONGEST] for part in _BETWEEN.split(plain)]
    return list(dict.fromkeys(part for part in whole if len(part) > 1))


@given(st.text(alphabet=_LETTERS, max_size=30) | st.text(max_size=80))
def test_search_text_is_split_at_spaces_and_stripped_of_punctuation(typed: str):
    assert search_words.parse_search(typed) == _split_step_by_step(typed)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("tank/home", ["tank/home", "tank", "home"]),
        ("Load 18.23, on web-17!", ["load", "18.23", "on", "web-17", "web"]),
        ("from 203.0.113.9", ["from", "203.0.113.9"]),
        ("fe80::1 sda1/3ware", ["fe80::1", "fe80", "sda1/3ware", "sda1", "3ware"]),
        ("device=sdb device=sdb", ["device=sdb", "device", "sdb"]),
        ("a . - x", []),
    ],
)
def test_search_words_include_their_parts_except_digits(text: str, matches: list[str]):
    assert search_words.split_search_words(text) == matches
