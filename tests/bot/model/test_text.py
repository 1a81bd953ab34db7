"""Characters that a terminal or a browser would act on are escaped."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.text import escape_control, escape_to_one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("naïve ☃ 漢字", "naïve ☃ 漢字"),
        ("two\nlines\t", "two\nlines\t"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("lb1\u202egnp.exe", "lb1\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("nul\x00", "nul\\x00"),
        ("line\u2028separator", "line\\u2028separator"),
        ("\ud800", "\\ud800"),
        ("\r", "\\x0d"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str):
    assert escape_control(text) == shown


@given(st.text(alphabet=st.characters()))
def test_escaped_text_contains_no_control_or_format_characters(text: str):
    left = {
        character
        for character in escape_control(text)
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }
    assert left <= {"\n", "\t", "\u200c", "\u200d"}


@given(st.text(alphabet=st.characters()))
def test_text_escaped_to_one_line_has_no_line_breaks(text: str):
    assert len(escape_to_one_line(text).splitlines()) <= 1
