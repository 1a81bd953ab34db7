"""What a person types, and how Slack writes it down: escapes, mentions, links. No I/O."""

import html
import re
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from tests.slack_emulator.payloads import Typed

_COMMAND = re.compile(r"(/[A-Za-z0-9_-]+)(?:\s+(.*))?", re.DOTALL)
_REFERENCE = re.compile(r"(?<![\w&;/.])([@#])([\w.-]*\w)")
_URL = re.compile(r"(https?://[^\s<>|]+)")


def parse_slash_command(typed: str) -> Typed | None:
    """Return the slash command, or None where the words are a message."""
    match = _COMMAND.fullmatch(typed.strip())
    return Typed(match[1], (match[2] or "").strip()) if match else None


def escape(typed: str) -> str:
    return typed.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def find_links(words: str, domains: Collection[str]) -> list[tuple[str, str]]:
    """Return domain and URL of each link of a message as Slack keeps it, if it is to a domain."""
    urls = [html.unescape(url) for url in re.findall(r"<(https?://[^\s<>|]+)>", words)]
    links = [(urlsplit(url).hostname or "", url) for url in urls]
    return [(host, url) for host, url in links if host in domains]


def encode_message(typed: str, people: Mapping[str, str], channels: Mapping[str, str]) -> str:
    """Return typed words as Slack keeps them: `@bob` becomes `<@U…>` and a URL `<https://…>`.

    people and channels: id by lower-case name. A name that nobody has stays as it is.
    """

    def reference(match: re.Match[str]) -> str:
        known = people if match[1] == "@" else channels
        target = known.get(match[2].lower())
        if target is None:
            return match[0]
        return f"<@{target}>" if match[1] == "@" else f"<#{target}|{match[2].lower()}>"

    # Splitting by a pattern with a group leaves words at even places and URLs at odd ones.
    parts = _URL.split(escape(typed))
    parts[0::2] = [_REFERENCE.sub(reference, words) for words in parts[0::2]]
    parts[1::2] = [f"<{url}>" for url in parts[1::2]]
    return "".join(parts)


def encode_command_text(words: str, people: Mapping[str, str], channels: Mapping[str, str]) -> str:
    """Return a command's words as `should_escape` has them: `<@U…|bob>` and `<#C…|ops>`."""

    def reference(match: re.Match[str]) -> str:
        known = people if match[1] == "@" else channels
        target = known.get(match[2].lower())
        return f"<{match[1]}{target}|{match[2].lower()}>" if target else match[0]

    return _REFERENCE.sub(reference, escape(words))
