"""The pieces of Slack's Block Kit that messages are made of. Pure.

Data goes into rich text, whose elements say what they are: Slack reads no mention, link or format
out of them. Only `context` lines and the text for notifications are mrkdwn, by way of `mrkdwn`.
Source: https://docs.slack.dev/reference/block-kit
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.model.canonical import hash_canonical
from bot.model.text import escape_control, escape_to_one_line

# Outgoing JSON, never read by us.
Block = dict[str, Any]
Element = dict[str, Any]
View = dict[str, Any]

MAX_HEADER_LENGTH = 150
_MAX_TEXT_LENGTH = 2900
_MAX_LABEL_LENGTH = 75


@dataclass(frozen=True)
class Message:
    """One message. text: the point and the action, for notifications and screen readers.

    name: what it is found again by, "" if it is not looked for. posted_since: the moment, in
    seconds, since when it may be there though nobody heard of it; None if it surely is not.
    """

    text: str
    blocks: Sequence[Block] = ()
    name: str = ""
    search_since: float | None = None

    @property
    def digest(self) -> str:
        return hash_canonical({"text": self.text, "blocks": self.blocks})


# What would begin bold, italic or struck words, or an emoji; not the colons of a time of day.
_FORMAT_START_PATTERN = re.compile(r"(?<![^\W_])([*_~])(?=\S)|(:)(?=(?!\d\d:)[a-z0-9_+'-]+:)")


def escape_mrkdwn(text: str) -> str:
    """Return *text* on one line, so that Slack shows it and acts on none of it."""
    # Slack knows no way to escape these: thin spaces keep them from beginning anything, and
    # another character that looks the same stands for backticks, which may hold spaces.
    plain = _FORMAT_START_PATTERN.sub("\\g<0>\u2009", escape_to_one_line(text).replace("`", "ˋ"))
    safe = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # At the beginning of a line it would quote.
    return f"\u2009{safe}" if safe.startswith("&gt;") else safe


def shorten_text(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def format_notification(text: str) -> str:
    return escape_mrkdwn(shorten_text(text, 500))


# --- blocks ---


def header(text: str) -> Block:
    return {"type": "header", "text": _plain_text(text, MAX_HEADER_LENGTH)}


def context(*lines: str) -> Block:
    """Draw small grey text. lines: mrkdwn, with everything from outside escaped."""
    elements = [
        {"type": "mrkdwn", "text": shorten_text(line, _MAX_TEXT_LENGTH), "verbatim": True}
        for line in lines
    ]
    return {"type": "context", "elements": elements}


def rich_text(*parts: Element) -> Block:
    return {"type": "rich_text", "elements": list(parts)}


def actions(block_id: str, *buttons: Element) -> Block:
    return {"type": "actions", "block_id": block_id, "elements": list(buttons)}


def button(text: str, *, action: str, value: str, label: str) -> Element:
    """label: what a screen reader says, since several messages have the same buttons."""
    return {
        "type": "button",
        "text": _plain_text(text, _MAX_LABEL_LENGTH),
        "action_id": action,
        "value": value,
        "accessibility_label": shorten_text(escape_to_one_line(label), _MAX_LABEL_LENGTH),
    }


def confirm_dialog(title: str, text: str, *, yes: str) -> Element:
    return {
        "title": _plain_text(title, 100),
        "text": _plain_text(text, 300),
        "confirm": _plain_text(yes, 30),
        "deny": _plain_text("Back", 30),
        "style": "danger",
    }


# --- parts of rich text ---


def rich_text_section(*inlines: Element) -> Element:
    return {"type": "rich_text_section", "elements": list(inlines)}


def quote(text: str) -> Element:
    return {"type": "rich_text_quote", "elements": [_text_element(escape_to_one_line(text))]}


def preformatted(text: str) -> Element:
    return {"type": "rich_text_preformatted", "elements": [_text_element(escape_control(text))]}


def bullet_list(*items: Sequence[Element]) -> Element:
    return {
        "type": "rich_text_list",
        "style": "bullet",
        "elements": [rich_text_section(*inlines) for inlines in items],
    }


def text_element(text: str) -> Element:
    return _text_element(escape_to_one_line(text))


def bold(text: str) -> Element:
    return _text_element(escape_to_one_line(text)) | {"style": {"bold": True}}


def code(text: str) -> Element:
    return _text_element(escape_to_one_line(text)) | {"style": {"code": True}}


def emoji(name: str) -> Element:
    return {"type": "emoji", "name": name}


def user_mention(user: str) -> Element:
    """Mention somebody: whoever is mentioned in a new message is notified."""
    return {"type": "user", "user_id": user}


def link(url: str, text: str) -> Element:
    return {"type": "link", "url": url, "text": escape_to_one_line(text) or url}


def format_date(microseconds: int) -> str:
    """Return a moment as mrkdwn that each reader sees in their own time zone."""
    seconds = microseconds // 1_000_000
    return f"<!date^{seconds}^{{date_short_pretty}} {{time}}|{_format_utc(microseconds)}>"


def _format_utc(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _text_element(text: str) -> Element:
    # Slack refuses empty text elements.
    return {"type": "text", "text": text or " "}


def _plain_text(text: str, max_length: int) -> Element:
    return {
        "type": "plain_text",
        "text": shorten_text(escape_to_one_line(text), max_length),
        "emoji": False,
    }
