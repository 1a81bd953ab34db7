"""What people type, and what Slack and phones make of it."""

import pytest

from bot.slack.words import Said, said

TYPED = {
    "": Said(""),
    "help": Said("help"),
    "abusers clear lb1 203.0.113.9": Said("abusers clear lb1 203.0.113.9"),
    "abusers clear lb1 because the customer's waiting": Said(
        "abusers clear lb1", "the customer's waiting"
    ),
    "abusers clear lb1 Because it’s “urgent”": Said("abusers clear lb1", "it’s “urgent”"),
    "because of it": Said("", "of it"),
    "abusers clear lb1 because": Said("abusers clear lb1 because"),
    "x because a because b": Said("x", "a because b"),
    "a &amp;&amp; b &lt;c&gt;": Said("a && b <c>"),
    "&amp;lt;": Said("&lt;"),
    "clear <http://203.0.113.9|203.0.113.9>": Said("clear 203.0.113.9"),
    "clear <https://example.com/x>": Said("clear https://example.com/x"),
    "mail <mailto:a@example.com|a@example.com>": Said("mail a@example.com"),
    "ask <@U0OLGA|olga> in <#C0OPS|ops>": Said("ask @olga in #ops"),
    "ask <@U0OLGA>": Said("ask @U0OLGA"),
}


@pytest.mark.parametrize(("text", "understood"), TYPED.items(), ids=TYPED.keys())
def test_what_was_typed_is_found_again(text: str, understood: Said):
    assert said(text) == understood


def test_the_first_word_is_told_from_the_rest():
    typed = said("  Deny 12 not  today ")
    assert (typed.first, typed.rest) == ("deny", "12 not  today")
