"""Output of hosts as HTML."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.web.terminal_text import MAX_SHOWN_LINES, remove_escape_sequences, render_output


def _html(text: str) -> str:
    return "\n".join(line.html for line in render_output(text))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain\r\n", "plain"),
        ("\x1b[31mred\x1b[0m plain", '<span class="kt-ansi-red">red</span> plain'),
        ("\x1b[1;92mok\x1b[22;39m", '<span class="kt-ansi-green kt-ansi-bold">ok</span>'),
        (
            "\x1b[34mone\ntwo",
            '<span class="kt-ansi-blue">one</span>\n<span class="kt-ansi-blue">two</span>',
        ),
        ("\x1b[38;5;196mpalette\x1b[48;2;1;31;3m", "palette"),
        ("\x1b]0;title\x07\x1b[2J\x1b[Hx\x1b(B", "x"),
        ("\x1b[31m<b>\x1b[m", '<span class="kt-ansi-red">&lt;b&gt;</span>'),
        ("\x07\u202e", "\\x07\\u202e"),
    ],
)
def test_ansi_colours_become_classes_and_other_sequences_are_removed(text: str, html: str) -> None:
    assert _html(text) == html


@given(st.text(st.sampled_from("\x1b[]0123;mJ<>&\"'\n\\\x07a")))
def test_rendered_output_contains_no_foreign_markup(text: str) -> None:
    html = _html(text)
    assert re.sub(r'<span class="[a-z -]+">|</span>', "", html).count("<") == 0
    assert "\x1b" not in html


def test_long_output_shows_its_newest_lines_with_numbers() -> None:
    lines = render_output("x\n" * (MAX_SHOWN_LINES + 5))
    assert (lines[0].number, lines[-1].number) == (6, MAX_SHOWN_LINES + 5)


def test_removing_escape_sequences_leaves_other_text_unchanged() -> None:
    assert remove_escape_sequences("a\x1b[31mb") == "ab"
    assert remove_escape_sequences("plain [31m") == "plain [31m"
