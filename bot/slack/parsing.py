"""Parse what people type behind the slash command, without Slack's markup. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

# https://docs.slack.dev/messaging/formatting-message-text: <@U1|ann>, <#C1|ops>, <http://x|x>
_WRAPPED_PATTERN = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
_MENTION_PATTERN = re.compile(r"<@([UW][A-Z0-9]{1,20})(?:\|[^<>]*)?>")
_REASON_PATTERN = re.compile(r"(?:^|\s)because\s+(?=\S)", re.IGNORECASE)


@dataclass(frozen=True)
class TypedText:
    """What was typed, split at the word "because"."""

    command_words: str
    """Before "because", as typed."""
    reason: str = ""
    """After "because"."""

    @property
    def first_word(self) -> str:
        return (self.command_words.split(None, 1) or [""])[0].lower()

    @property
    def words_after_first(self) -> str:
        return self.command_words[len(self.first_word) :].strip()


def replace_mentions(text: str, person_ids: Mapping[str, str]) -> str:
    """Replace each mention by the person's id. person_ids: by Slack user.

    The label of a mention is not used: the person it names can change it.
    """
    return _MENTION_PATTERN.sub(lambda found: f"@{person_ids.get(found[1], found[1])}", text)


def get_text_of_mention(text: str) -> str:
    """Return what follows the first mention on one line, or what precedes it if it is last."""
    found = _MENTION_PATTERN.search(text)
    rest = text[found.end() :].strip() or text[: found.start()] if found else text
    return " ".join(rest.split())


def parse_typed_text(text: str) -> TypedText:
    """Split off the reason of a text with Slack's markup."""
    return split_reason(unwrap_text(text))


def split_reason(text: str) -> TypedText:
    """Split off the reason, which may contain quotation marks and any visible character."""
    parts = _REASON_PATTERN.split(text, maxsplit=1)
    return TypedText(parts[0].strip(), parts[1].strip() if len(parts) > 1 else "")


def unwrap_text(text: str) -> str:
    """Remove the angle brackets in which Slack wraps links and names."""
    plain = _WRAPPED_PATTERN.sub(_unwrap_match, text)
    # The ampersand last: "&amp;lt;" was typed "&lt;".
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _unwrap_match(wrapped: re.Match[str]) -> str:
    mark, target, label = wrapped[1], wrapped[2], wrapped[3]
    if mark in {"@", "#"}:
        return mark + (label or target)
    return label or target
