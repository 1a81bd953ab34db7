import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tests.slack_emulator import markdown
from tests.slack_emulator.controls import Surface
from tests.slack_emulator.mrkdwn import Names, to_html
from tests.slack_emulator.rendering import blocks_to_html

NAMES = Names(
    users={"U1": "bob", "U2": "<b>"},
    channels={"C1": "ops"},
    groups={"S1": "leads"},
    reader="U1",
    now=datetime(2025, 11, 21, 12, 0, tzinfo=UTC),
)

OUR_TAGS = re.compile(
    "strong|em|s|u|code|pre|blockquote|br|a|span|time|p|ul|ol|li|div|table|tr|td|th|small|hr|h3|"
    "form|button|input|select|option|optgroup|textarea|label|details|summary|figure|figcaption"
)
OUR_ATTRIBUTES = re.compile(
    "href|target|rel|class|datetime|title|id|name|value|type|disabled|selected|checked|role|for|"
    "tabindex|placeholder|autocomplete|autofocus|rows|maxlength|label|scope|(data|aria)-[a-z-]+"
)


class Reader(HTMLParser):
    """Notes every tag and attribute that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not OUR_TAGS.fullmatch(tag):
            self.foreign.append(tag)
        for name, value in attrs:
            ours = OUR_ATTRIBUTES.fullmatch(name)
            followed = name != "href" or (value or "").lower().startswith(
                ("http://", "https://", "mailto:")
            )
            if not (ours and followed):
                self.foreign.append(f"{tag} {name}={value}")

    def handle_comment(self, data: str) -> None:
        self.foreign.append(f"comment {data}")

    def handle_decl(self, decl: str) -> None:
        self.foreign.append(f"declaration {decl}")


def foreign(html: str) -> list[str]:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader.foreign


# Pieces that mean something to mrkdwn, Markdown or HTML, told apart by spaces.
PIECES = (
    """< > & &lt; &amp;lt; " ' ` ``` * _ ~ | ^ <script> </pre> <!-- <!channel> <@U2> [a](b) # """
    """javascript:alert(1) <javascript:alert(1)|x> https://a.example/ :tada: &#60; \x00 \u202e """
    """<https://a.example/'"onclick=x|y> <!date^1^{date}^javascript:x|y> [x](https://a/"o=) """
)
HOSTILE_TEXT = st.lists(
    st.sampled_from([*PIECES.split(" "), "\n", "\n> ", " ", "<img src=x onerror=alert(1)>"])
    | st.text(max_size=8),
    max_size=20,
).map("".join)


@given(HOSTILE_TEXT)
def test_hostile_text_never_becomes_html_markup(source: str) -> None:
    assert foreign(to_html(source, NAMES)) == []
    assert foreign(markdown.to_html(source)) == []


def test_html_checker_of_the_tests_detects_unescaped_text() -> None:
    assert foreign(Markup("<p>{}</p>").format("<script>")) == []
    assert foreign("<p>" + "<script>" + "</p>") == ["script"]
    assert foreign('<a href="javascript:alert(1)">x</a>') != []
    assert foreign('<p onclick="x">y</p>') != []


KINDS = (
    *("overflow", "static_select", "external_select", "checkboxes", "radio_buttons", "button"),
    *("plain_text_input", "datepicker", "multi_static_select", "multi_external_select"),
    *("users_select", "multi_users_select", "datetimepicker", "feedback_buttons", "sundial"),
)


def _blocks(words: str) -> list[dict[str, Any]]:
    plain = {"type": "plain_text", "text": words}
    marked = {"type": "mrkdwn", "text": words}
    one = {"text": plain, "value": words, "description": plain}
    confirm = {"title": plain, "text": marked, "confirm": plain, "deny": plain}
    inline = [
        {"type": "text", "text": words, "style": {"bold": True, words: True}},
        {"type": "link", "url": words, "text": words},
        {"type": "user", "user_id": words},
        {"type": "emoji", "name": words},
        {"type": "broadcast", "range": words},
        {"type": "date", "timestamp": 1, "format": words, "url": words, "fallback": words},
    ]
    elements = [
        {"type": kind, "action_id": words, "options": [one], "text": plain, "confirm": confirm}
        | {"placeholder": plain, "initial_value": words, "value": words, "url": words}
        for kind in KINDS
    ]
    return [
        {"type": "section", "text": marked, "fields": [plain, marked], "block_id": words},
        {"type": "header", "text": plain},
        {"type": "context", "elements": [marked, {"type": "image", "alt_text": words}]},
        {"type": "image", "image_url": words, "alt_text": words, "title": plain},
        {"type": "markdown", "text": words},
        {"type": words, "text": words},
        {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": inline}]},
        {"type": "table", "rows": [[{"type": "raw_text", "text": words}]]},
        {"type": "actions", "block_id": words, "elements": elements},
        *(
            {"type": "input", "block_id": words, "label": plain, "hint": plain, "element": one}
            for one in elements
        ),
    ]


@given(HOSTILE_TEXT)
def test_hostile_block_text_never_becomes_html_markup(words: str) -> None:
    surface = Surface(words, NAMES, errors={words: words}, people=[(words, words)])
    assert foreign(blocks_to_html(_blocks(words), surface)) == []


@pytest.mark.parametrize(
    ("source", "html"),
    [
        ("*bold* _it_ ~no~", "<strong>bold</strong> <em>it</em> <s>no</s>"),
        ("a*b*c snake_case_name", "a*b*c snake_case_name"),
        ("*<@U1> did*", '<strong><span class="mention mention-me">@bob</span> did</strong>'),
        ("`a *b*`", "<code>a *b*</code>"),
        ("```\nx <b>\n```", "<pre><code>x &lt;b&gt;</code></pre>"),
        ("&lt;b&gt; &amp;lt;", "&lt;b&gt; &amp;lt;"),
        ("<#C1|other>", '<span class="mention">#ops</span>'),
        ("<!subteam^S1>", '<span class="mention">@leads</span>'),
        ("<!here>", '<span class="mention mention-loud">@here</span>'),
        ("<javascript:alert(1)|ok>", "ok (javascript:alert(1))"),
        ("&gt; said\n> more\nend", "<blockquote>said<br>more</blockquote>end"),
        (":tada: :unknown:", "🎉 :unknown:"),
        ("one\ntwo", "one<br>two"),
    ],
)
def test_mrkdwn_is_rendered_as_slack_renders_it(source: str, html: str) -> None:
    assert to_html(source, NAMES) == html


def test_mrkdwn_link_has_noopener_and_noreferrer() -> None:
    html = to_html("<https://a.example/?x=1&amp;y=2|Look>", NAMES)
    assert 'href="https://a.example/?x=1&amp;y=2"' in html
    assert 'rel="noopener noreferrer nofollow"' in html


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{date_short_pretty} at {time}", "today at 11:00"),
        ("{date_num} {time_secs}", "2025-11-21 11:00:00"),
        ("{ago}", "1 hour ago"),
        ("{date_long}", "Friday, November 21, 2025"),
        ("{unknown}", "{unknown}"),
    ],
)
def test_mrkdwn_date_is_formatted_for_its_reader(pattern: str, words: str) -> None:
    assert f">{words}</time>" in to_html(f"<!date^1763722800^{pattern}|fallback>", NAMES)


def test_long_text_of_mrkdwn_marks_is_rendered_quickly() -> None:
    for source in ("*a " * 13_000, "*a_ " * 10_000, "`" * 40_000, "<" * 40_000, "[a](" * 9_000):
        assert to_html(source, NAMES)
        assert markdown.to_html(source)


def test_markdown_headings_lists_and_tables_are_rendered() -> None:
    source = "# Head\n- **a**\n- `b`\n\n1. one\n\n| x | y |\n|---|---|\n| 1 | 2 |\n```\ncode\n```"
    html = markdown.to_html(source)
    for part in ("md-heading", "<li><strong>a</strong></li>", "<ol>", "<td>2</td>", "<pre>"):
        assert part in html


def test_unknown_block_type_is_shown_as_unsupported() -> None:
    html = blocks_to_html([{"type": "carousel"}], Surface("k", NAMES))
    assert "Unsupported block: carousel" in html
