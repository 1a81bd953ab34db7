"""Text that people may write in a reason or a name, and text that is rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.plain_text import check_printable, join_to_one_line
from bot.model.text import escape_control
from connectors.visible_text import InvisibleCharacterError, quote_text, refuse_invisible

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"

ORDINARY = [
    "naïve ☃ 漢字",
    FAMILY,
    "\u2764\ufe0f\u200d\U0001f525",  # a heart on fire: a variation selector before the joiner
    "\U0001f469\U0001f3fd\u200d\U0001f4bb",  # a skin tone before it
    SCOTLAND,
    "می\u200cخواهم",
    "PDF\u200cها",
    "ක්\u200dරි",
    "ক্\u200c ",
    "\U0001faea",  # of a later Unicode than some Pythons know
    "no\u00a0break",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_of_any_script_is_accepted_unchanged(text: str):
    assert check_printable(text) == text
    assert escape_control(text) == text


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("one\ntwo", "one two"),
        (" one\r\n\r\n two\t3 ", "one two 3"),
        ("no\u00a0break", "no break"),
        ("one\u2028two\x0bthree\x85four", "one two three four"),
    ],
)
def test_reason_is_joined_to_one_line(text: str, folded: str):
    assert join_to_one_line(text) == folded


@pytest.mark.parametrize(
    "text",
    [
        "pass\u200cword",
        "pass\u200dword",
        "\u200d",
        "a \u200c b",
        "\U0001f468\u200d\u200d\U0001f469",
        "zero\u200bwidth",
        "\u202eright to left",
        "\u2066isolate",
        "\u200fmark",
        "soft\u00adhyphen",
        "\ufeffmark",
        "\x1b[31m",
        "nul\x00",
        "\U000e0041tag",
        "\U0001f3f4\U000e0067",
        "\ue000",
        "\ufff0",
        "\ud800",
    ],
)
def test_invisible_characters_are_rejected_by_name(text: str):
    with pytest.raises(InvisibleCharacterError, match=r"invisible character U\+[0-9A-F]{4}"):
        join_to_one_line(text)
    with pytest.raises(InvisibleCharacterError):
        check_printable(text)


@pytest.mark.parametrize("text", ["one\ntwo", "one\ttwo"])
def test_name_of_several_lines_is_rejected(text: str):
    with pytest.raises(InvisibleCharacterError):
        check_printable(text)


@given(st.text(alphabet=st.characters()))
def test_accepted_text_is_one_line_without_control_characters(text: str):
    try:
        kept = join_to_one_line(text)
    except InvisibleCharacterError:
        return
    assert len(kept.splitlines()) <= 1
    assert join_to_one_line(kept) == kept


@pytest.mark.parametrize("text", [FAMILY, "می\u200cخواهم"])
def test_text_sent_to_hosts_must_not_contain_joiners(text: str):
    with pytest.raises(InvisibleCharacterError):
        refuse_invisible(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("lb9", "'lb9'"),
        ("lb\u00a09", "'lb\u00a09'"),
        ("it's", "'it's'"),
        ("a\nb\x1b", "'a\\nb\\x1b'"),
        ("\u202e", "'\\u202e'"),
    ],
)
def test_quoted_text_escapes_only_invisible_characters(text: str, shown: str):
    assert quote_text(text) == shown
