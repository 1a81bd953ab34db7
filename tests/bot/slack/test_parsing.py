"""Parsing of typed text, with the escapes of Slack and the quotes of phones."""

import pytest

from bot.slack.parsing import TypedText, parse_typed_text

TYPED = {
    "": TypedText(""),
    "help": TypedText("help"),
    "abusers clear lb1 203.0.113.9": TypedText("abusers clear lb1 203.0.113.9"),
    "abusers clear lb1 because the customer's waiting": TypedText(
        "abusers clear lb1", "the customer's waiting"
    ),
    "abusers clear lb1 Because it’s “urgent”": TypedText("abusers clear lb1", "it’s “urgent”"),
    "because of it": TypedText("", "of it"),
    "abusers clear lb1 because": TypedText("abusers clear lb1 because"),
    "x because a because b": TypedText("x", "a because b"),
    "a &amp;&amp; b &lt;c&gt;": TypedText("a && b <c>"),
    "&amp;lt;": TypedText("&lt;"),
    "clear <http://203.0.113.9|203.0.113.9>": TypedText("clear 203.0.113.9"),
    "clear <https://example.com/x>": TypedText("clear https://example.com/x"),
    "mail <mailto:a@example.com|a@example.com>": TypedText("mail a@example.com"),
    "ask <@U0OLGA|olga> in <#C0OPS|ops>": TypedText("ask @olga in #ops"),
    "ask <@U0OLGA>": TypedText("ask @U0OLGA"),
}


@pytest.mark.parametrize(("text", "understood"), TYPED.items(), ids=TYPED.keys())
def test_typed_text_is_parsed_with_slack_escapes_and_reason(text: str, understood: TypedText):
    assert parse_typed_text(text) == understood


def test_typed_text_is_split_into_first_word_and_rest():
    typed = parse_typed_text("  Deny 12 not  today ")
    assert (typed.first_word, typed.words_after_first) == ("deny", "12 not  today")
