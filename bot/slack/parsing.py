"""What people type behind the slash command, freed of what Slack and phones make of it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

# https://docs.slack.dev/messaging/formatting-message-text: <@U1|ann>, <#C1|ops>, <http://x|x>
_WRAPPED = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
_MENTION = re.compile(r"<@([UW][A-Z0-9]{1,20})(?:\|[^<>]*)?>")
_BECAUSE = re.compile(r"(?:^|\s)because\s+(?=\S)", re.IGNORECASE)


@dataclass(frozen=True)
class TypedText:
    """What was typed. words: before "because", as typed. reason: what follows it."""

    words: str
    reason: str = ""

    @property
    def first(self) -> str:
        return (self.words.split(None, 1) or [""])[0].lower()

    @property
    def rest(self) -> str:
        return self.words[len(self.first) :].strip()


def replace_mentions(text: str, people: Mapping[str, str]) -> str:
    """Return what was typed with each mention as the person's id here. people: by Slack user.

    What a mention is labelled with can be changed by whoever it names.
    """
    return _MENTION.sub(lambda found: f"@{people.get(found[1], found[1])}", text)


def parse_typed_text(text: str) -> TypedText:
    """Split off the reason, which may hold quotation marks and anything else that can be seen."""
    parts = _BECAUSE.split(unwrapped(text), maxsplit=1)
    return TypedText(parts[0].strip(), parts[1].strip() if len(parts) > 1 else "")


def unwrapped(text: str) -> str:
    """Return what was typed before Slack wrapped links and names in angle brackets."""
    plain = _WRAPPED.sub(_typed, text)
    # The ampersand last: "&amp;lt;" was typed "&lt;".
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _typed(wrapped: re.Match[str]) -> str:
    mark, target, label = wrapped[1], wrapped[2], wrapped[3]
    if mark in {"@", "#"}:
        return mark + (label or target)
    return label or target
