"""Find what Slack would act on in a payload: mentions, links and formats not from Keyturn.

mrkdwn is rendered by the emulator, which makes tags of mentions, links and formats.
"""

import re
import unicodedata
from collections.abc import Iterator
from html import unescape
from typing import Any, cast

from tests.bot.slack.json_walk import walk_objects
from tests.slack_emulator.mrkdwn import EMOJI, Names, to_html

# A moment, a way to our pages, and one of our channels.
_OURS = re.compile(
    r'<time [^<>]*>|<a href="https://keyturn\.example\.com/[^"]*" target="_blank" '
    r'rel="noopener noreferrer nofollow">Open|<span class="mention">#C0[A-Z]+'
)
_OUR_LINK = re.compile(r"https://keyturn\.example\.com/[\w/?=.-]*", re.ASCII)
_PLAIN_LINK = re.compile(r"https?://[\w.-]+(?::\d+)?(?:[/?#][^\s<>|@]*)?", re.ASCII)
# NOBODY is not in the policy, and asks for access.
_OUR_PEOPLE = re.compile(r"U0(DORA|OLGA|ADAM|STAN|NOBODY)", re.ASCII)
_TAG = re.compile(r"<[^/][^<>]*>[^<]*")
_ACTING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_PREFORMATTED = "rich_text_preformatted"
_CALLS = frozenset({"user", "usergroup", "channel", "broadcast", "team", "color", "date"})


def find_active_markup(payload: object) -> list[str]:
    """Return what in a payload calls, links, formats, hides or forges a line, and is not ours."""
    problems = [f"unseen {character!r} in {text[:200]!r}" for text, character in _unseen(payload)]
    # What a host said may be lines of their own, where nobody takes them for ours.
    quoted = [
        each["elements"] for each in walk_objects(payload) if each.get("type") == _PREFORMATTED
    ]
    spared = {id(element) for elements in quoted for element in elements}
    for part in walk_objects(payload):
        problems += [] if id(part) in spared else _of_part(part)
    return problems


def _of_part(part: dict[str, Any]) -> list[str]:
    kind, text = part.get("type"), part.get("text")
    match kind:
        case "mrkdwn":
            loose = [] if part.get("verbatim") is True else [f"not verbatim: {text!r}"]
            return loose + marked(str(text))
        case "plain_text":
            loose = [f"emoji in {text!r}"] if part.get("emoji", True) else []
            return loose + _forged(str(text))
        case "text" | "raw_text":
            return _forged(str(text))
        case "link":
            # An address in what a person wrote leads where it says.
            is_plain = part["url"] == text and _PLAIN_LINK.fullmatch(str(text))
            is_ours = _OUR_LINK.fullmatch(str(part["url"]))
            return [] if is_ours or is_plain else [f"link {part['url']}"]
        case _ if kind in _CALLS:
            ours = kind == "user" and _OUR_PEOPLE.fullmatch(str(part["user_id"]))
            return [] if ours or _is_our_time(part) else [f"{kind} {part}"]
        case _:
            # A message's own text, which notifications show, and errors below fields.
            marked_parts = [*marked(text)] if isinstance(text, str) else []
            errors = cast("dict[str, str]", part.get("errors") or {})
            return marked_parts + [line for error in errors.values() for line in _forged(error)]


def _is_our_time(part: dict[str, Any]) -> bool:
    """Return whether a part is a time in the one form that Keyturn sends, without a link."""
    form = {"type": "date", "format": "{date_short_pretty} {time}"}
    rest = {name: value for name, value in part.items() if name not in form}
    return (
        form.items() <= part.items()
        and set(rest) == {"timestamp", "fallback"}
        and isinstance(rest["timestamp"], int)
        and re.fullmatch(r"[0-9: -]{16} UTC", str(rest["fallback"])) is not None
    )


def marked(text: str) -> list[str]:
    """Return what Slack makes of a mrkdwn text, beside what is ours."""
    shown = str(to_html(text, Names())).replace("<br>", "\n")
    tags = [tag for tag in _TAG.findall(shown) if not _OURS.match(tag)]
    plain = unescape(re.sub(r"<[^<>]*>", "", shown))
    pictures = [f"emoji {one}" for one in EMOJI.values() if shown.count(one) > text.count(one)]
    return [*tags, *pictures, *_forged(plain)]


def _forged(text: str) -> list[str]:
    return [f"a line of its own: {text!r}"] if re.search(r"\n\s*Approved by", text) else []


def _unseen(value: object) -> Iterator[tuple[str, str]]:
    """Yield texts with characters that a reader cannot see, wherever they stand."""
    if isinstance(value, str):
        for character in value:
            if character not in "\n\t" and unicodedata.category(character) in _ACTING:
                yield value, character
    elif isinstance(value, dict):
        for one in cast("dict[str, object]", value).values():
            yield from _unseen(one)
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _unseen(one)
