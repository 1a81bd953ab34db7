"""Build messages from Slack's Block Kit. Pure.

Data goes into rich text, where Slack does not parse mentions, links or formats. Only `context`
lines and notification texts are mrkdwn: escape data for them by `escape_mrkdwn`.
Source: https://docs.slack.dev/reference/block-kit
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.model.canonical import hash_canonical
from bot.model.text import escape_control, escape_to_one_line
from bot.model.times import split_times, to_datetime
from bot.slack.aliases import COMMAND

# JSON that is only sent, never read.
Block = dict[str, Any]
Element = dict[str, Any]
View = dict[str, Any]
# A part of a paragraph; a string is plain text.
Inline = Element | str

MAX_HEADER_LENGTH = 150
_MAX_TEXT_LENGTH = 2900
_MAX_LABEL_LENGTH = 75
_MAX_REASON_LENGTH = 1000


@dataclass(frozen=True)
class Message:
    """One message."""

    text: str
    """For notifications and screen readers: what happened and what to do."""
    blocks: Sequence[Block] = ()
    place: str = ""
    """Where the rest is, as mrkdwn: follows the text if Slack does not take the blocks."""
    name: str = ""
    """Identifies the message in its channel, to post it once; "" without."""
    search_since: float | None = None
    """Search for it from this time on, in seconds, before posting it; None: never posted yet."""

    @property
    def digest(self) -> str:
        """Hash of text and blocks."""
        return hash_canonical({"text": self.text, "blocks": self.blocks})


# Characters that begin bold, italic or struck text, or an emoji; not the colons of a time.
_FORMAT_START_PATTERN = re.compile(r"(?<![^\W_])([*_~])(?=\S)|(:)(?=(?!\d\d:)[a-z0-9_+'-]+:)")


def escape_mrkdwn(text: str) -> str:
    """Return *text* on one line, escaped so that Slack shows it literally."""
    # Slack cannot escape these: a thin space behind them prevents the format, and a similar
    # character replaces backticks, whose content may begin with a space.
    plain = _FORMAT_START_PATTERN.sub("\\g<0>\u2009", escape_to_one_line(text).replace("`", "ˋ"))
    safe = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # At the start of a line it would begin a quote.
    return f"\u2009{safe}" if safe.startswith("&gt;") else safe


def escape_sentence(text: str) -> str:
    """Return *text* escaped as mrkdwn, with its times in each reader's time zone."""
    parts = split_times(escape_mrkdwn(text))
    return "".join(part if at is None else _format_date(at) for part, at in parts)


def shorten_text(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def format_place(number: int, page_url: str) -> str:
    """Return where a run is shown, as mrkdwn: a link to its page, or the command that shows it."""
    return f"<{page_url}|Open run {number}>" if page_url else f"{COMMAND} run {number}"


def format_notification(text: str) -> str:
    """Return *text* as the mrkdwn of a notification."""
    return escape_mrkdwn(shorten_text(text, 500))


# --- blocks ---


def header(text: str) -> Block:
    return {"type": "header", "text": plain_text(text, max_length=MAX_HEADER_LENGTH)}


def section(text: str) -> Block:
    """Return a paragraph of plain text."""
    return {"type": "section", "text": plain_text(text)}


def context(*lines: str) -> Block:
    """Return a block of small grey text. lines: mrkdwn, with data escaped."""
    elements = [
        {"type": "mrkdwn", "text": shorten_text(line, _MAX_TEXT_LENGTH), "verbatim": True}
        for line in lines
    ]
    return {"type": "context", "elements": elements}


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Block:
    """Return a table of plain text, for messages only. rows: at most 99, of 20 columns."""
    cells = [
        [{"type": "raw_text", "text": escape_to_one_line(cell) or "–"} for cell in row]
        for row in (columns, *rows)
    ]
    return {
        "type": "table",
        "rows": cells,
        "column_settings": [{"is_wrapped": True}] * len(columns),
    }


def rich_text(*parts: Element) -> Block:
    return {"type": "rich_text", "elements": list(parts)}


def paragraph(*inlines: Inline) -> Block:
    """Return a block of one paragraph."""
    return rich_text(rich_text_section(*inlines))


def actions(block_id: str, *buttons: Element) -> Block:
    return {"type": "actions", "block_id": block_id, "elements": list(buttons)}


def button(text: str, *, action: str, value: str, label: str) -> Element:
    """Return a button. label: for screen readers, since many messages have the same buttons."""
    return {
        "type": "button",
        "text": plain_text(text, max_length=_MAX_LABEL_LENGTH),
        "action_id": action,
        "value": value,
        "accessibility_label": shorten_text(escape_to_one_line(label), _MAX_LABEL_LENGTH),
    }


def overflow(action: str, options: Sequence[tuple[str, str]]) -> Element:
    """Return a menu. options: text and value of each, at most five."""
    listed = [
        {"text": plain_text(text, max_length=_MAX_LABEL_LENGTH), "value": value}
        for text, value in options
    ]
    return {"type": "overflow", "action_id": action, "options": listed}


def confirm_dialog(title: str, text: str, *, yes: str) -> Element:
    return {
        "title": plain_text(title, max_length=100),
        "text": plain_text(text, max_length=300),
        "confirm": plain_text(yes, max_length=30),
        "deny": plain_text("Cancel", max_length=30),
        "style": "danger",
    }


# --- views ---

_MAX_TITLE_LENGTH = 24


def modal(
    title: str,
    blocks: Sequence[Block],
    *,
    callback: str = "",
    submit: str = "",
    metadata: Mapping[str, str] | None = None,
) -> View:
    """Return a modal. metadata: what the modal stores and returns."""
    view: View = {
        "type": "modal",
        "title": plain_text(title, max_length=_MAX_TITLE_LENGTH),
        "close": plain_text("Cancel" if submit else "Close"),
        "blocks": list(blocks),
    }
    if callback:
        view |= {"callback_id": callback, "private_metadata": json.dumps(metadata)}
    return view | ({"submit": plain_text(submit)} if submit else {})


def input_block(block_id: str, label: str, element: Element) -> Block:
    return {"type": "input", "block_id": block_id, "label": plain_text(label), "element": element}


def time_input(action: str, *, initial: int) -> Element:
    """Return the element that takes a date and a time. initial: in seconds."""
    return {"type": "datetimepicker", "action_id": action, "initial_date_time": initial}


def reason_input(
    block_id: str, action: str, *, initial: str = "", seen_by: str, label: str = "Reason"
) -> Block:
    """Return a field for a reason. seen_by: who reads it, such as `Approvers see this`."""
    text_input: Element = {
        "type": "plain_text_input",
        "action_id": action,
        "multiline": True,
        "max_length": _MAX_REASON_LENGTH,
        "placeholder": plain_text(seen_by),
    }
    if 0 < len(initial) <= _MAX_REASON_LENGTH:
        text_input["initial_value"] = initial
    return input_block(block_id, label, text_input)


def plain_text(text: str, *, max_length: int = _MAX_TEXT_LENGTH) -> Element:
    return {
        "type": "plain_text",
        "text": shorten_text(escape_to_one_line(text), max_length),
        "emoji": False,
    }


# --- parts of rich text ---


def rich_text_section(*inlines: Inline) -> Element:
    elements = [
        element
        for one in inlines
        for element in (_sentence_elements(one) if isinstance(one, str) else [one])
    ]
    return {"type": "rich_text_section", "elements": elements}


def quote(text: str) -> Element:
    return {"type": "rich_text_quote", "elements": [_text_element(escape_to_one_line(text))]}


# An address that a browser opens, without a name before the host, which could disguise it. What
# ends a sentence, or is a bracket around it, is not part of it.
_URL_PATTERN = re.compile(
    r"https?://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::\d{1,5})?(?![\w@:.-]|[^\x00-\x7f])"
    r"(?:[/?#][\w/?#~%&=+$@!:;.,*-]*[\w/#~%&=+$-]|/)?",
    re.ASCII | re.IGNORECASE,
)


def quote_with_links(text: str) -> Element:
    """Quote what a person wrote: an address in it is a link that shows where it leads."""
    return {"type": "rich_text_quote", "elements": [*_split_links(escape_to_one_line(text))]}


def _split_links(text: str) -> Iterator[Element]:
    at = 0
    for found in _URL_PATTERN.finditer(text):
        if found.start() > at:
            yield _text_element(text[at : found.start()])
        yield link(found[0], found[0])
        at = found.end()
    if at < len(text) or not text:
        yield _text_element(text[at:])


def preformatted(text: str) -> Element:
    return {"type": "rich_text_preformatted", "elements": [_text_element(escape_control(text))]}


def bullet_list(*items: Sequence[Inline]) -> Element:
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


def text_with_code(text: str) -> list[Element]:
    """Return a text as elements, with what is between backticks as code."""
    parts = re.split(r"`([^`\n]+)`", text)
    elements = [code(part) if n % 2 else text_element(part) for n, part in enumerate(parts)]
    return [element for element in elements if element["text"]]


def emoji(name: str) -> Element:
    return {"type": "emoji", "name": name}


def user_mention(user: str) -> Element:
    """Mention a person. Slack notifies the people whom a new message mentions."""
    return {"type": "user", "user_id": user}


def link(url: str, text: str) -> Element:
    return {"type": "link", "url": url, "text": escape_to_one_line(text) or url}


# The last second that Slack takes, in the year 2286.
_MAX_TIMESTAMP = 9_999_999_999


def date_element(at: datetime) -> Element:
    """Return a time that Slack shows in each reader's time zone, if it is one that Slack takes."""
    if at.timestamp() > _MAX_TIMESTAMP:
        return text_element(_format_utc(at))
    return {
        "type": "date",
        "timestamp": int(at.timestamp()),
        "format": "{date_short_pretty} {time}",
        "fallback": _format_utc(at),
    }


def format_date(microseconds: int) -> str:
    """Return a time as mrkdwn that Slack shows in each reader's time zone."""
    return _format_date(to_datetime(microseconds))


def _format_date(at: datetime) -> str:
    if at.timestamp() > _MAX_TIMESTAMP:
        return _format_utc(at)
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time}}|{_format_utc(at)}>"


def _format_utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M UTC}"


def _sentence_elements(text: str) -> list[Element]:
    """Return plain text as elements, with its times in each reader's time zone."""
    parts = split_times(text) or [(text, None)]
    return [text_element(part) if at is None else date_element(at) for part, at in parts]


def _text_element(text: str) -> Element:
    # Slack refuses empty text elements.
    return {"type": "text", "text": text or " "}
