"""Hostile text of hosts, people and rules is escaped in everything sent to Slack.

The test uses every command, button and form with hostile text in every free field, and parses
everything sent to Slack as Slack does.
"""

import ast
import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import bot.features
import bot.slack
from tests.bot.features.tables import collect
from tests.bot.slack.active_markup import find_active_markup
from tests.bot.slack.hostile import open_hostile_chat
from tests.bot.slack.hostile_walk import Walk, everything_sent

PACKAGE = Path(bot.slack.__file__).parent
# What features draw in chat, too.
FEATURES = Path(bot.features.__file__).parent
DRAWING = [
    file for file in sorted(FEATURES.glob("*/*.py")) if "from bot.slack.blocks" in file.read_text()
]
# What draws is seen by what it returns.
RENDERED_TYPES = frozenset({"Message", "View", "Block", "Element"})
ESCAPES = frozenset(
    {"escape_mrkdwn", "format_notification", "escape_to_one_line", "escape_control"}
)
# What is escaped though nobody outside has a say in it.
TRUSTED_TEXTS = frozenset(
    {
        "replies: f'Usage of {runbook.words}'",
        "replies: title",
        "replies: notice",
        "run_message: run.origin.source",
        "storms: f'{title} – {states}'",
        "delegation_command: end_command",
        *collect("CHAT_TRUSTED_TEXTS"),
    }
)


Place = tuple[str, int]
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Seen:
    """drew: the functions that were called. escaped: where hostile text was made harmless.

    Both by file and line.
    """

    drew: set[Place] = field(default_factory=set[Place])
    escaped: set[Place] = field(default_factory=set[Place])

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Note every call of what draws, and every text that is made harmless."""
        draw = set(_places().values())
        for module in _modules():
            classes = [one for one in vars(module).values() if isinstance(one, type)]
            for holder in (module, *(one for one in classes if one.__module__ == module.__name__)):
                for name, function in [*vars(holder).items()]:
                    if not isinstance(function, FunctionType):
                        continue
                    code = function.__code__
                    if function.__name__ in ESCAPES:
                        patch.setattr(holder, name, self._noting_text(function))
                    elif (code.co_filename, code.co_firstlineno) in draw:
                        patch.setattr(holder, name, self._noting(function))

    def _noting(self, function: FunctionType) -> Callable[..., object]:
        place = (function.__code__.co_filename, function.__code__.co_firstlineno)

        @wraps(function)
        def noted(*args: object, **named: object) -> object:
            self.drew.add(place)
            return function(*args, **named)

        return noted

    def _noting_text(self, function: FunctionType) -> Callable[[str], object]:
        @wraps(function)
        def noted(text: str) -> object:
            here = inspect.currentframe()
            caller = here.f_back if here else None
            if caller and any(mark in text for mark in ("<!", "*O", "\x1b")):
                self.escaped.add((caller.f_code.co_filename, caller.f_lineno))
            return function(text)

        return noted


def _modules() -> list[ModuleType]:
    # Features are imported when they are first used.
    features = [import_module(f"bot.features.{one.parent.name}.{one.stem}") for one in DRAWING]
    slack = [one for name, one in sys.modules.items() if name.startswith("bot.slack.")]
    return [*slack, *features]


def walk(directory: Path, part: Callable[[Walk], Awaitable[None]] = Walk.whole) -> list[object]:
    async def play() -> list[object]:
        with pytest.MonkeyPatch.context() as patch:
            async with open_hostile_chat(directory, patch) as chat:
                await part(Walk(chat))
                # Without a guard Slack would refuse some of it, too.
                chat.slack.faults.clear()
                return everything_sent(chat)

    return asyncio.run(play())


def _places() -> dict[str, Place]:
    """Return every function of the room that draws for Slack, by its name."""
    return {
        f"{file.stem}.{node.name}": (str(file), node.lineno)
        for file, node in _nodes()
        if isinstance(node, _FUNCTION) and _draws(node)
    }


def _draws(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    returned = ast.walk(function.returns) if function.returns else ()
    return bool({one.id for one in returned if isinstance(one, ast.Name)} & RENDERED_TYPES)


def _escapes() -> Iterator[tuple[str, Place]]:
    """Yield every place where a text is made harmless: its source, and where it stands."""
    for file, node in _nodes():
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(called, ast.Name) and called.id in ESCAPES:
            where = file.stem if file.parent == PACKAGE else f"{file.parent.name}/{file.stem}"
            yield f"{where}: {ast.unparse(node.args[0])}", (str(file), node.lineno)


def _nodes() -> Iterator[tuple[Path, ast.AST]]:
    """Yield every part of the room's sources, but for functions within functions."""
    for file in [*sorted(PACKAGE.glob("*.py")), *DRAWING]:
        nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
        inner = {id(one) for node in nodes if isinstance(node, _FUNCTION) for one in node.body}
        yield from ((file, node) for node in nodes if id(node) not in inner)


def test_hostile_text_is_escaped_in_everything_sent_to_slack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = Seen()
    seen.watch(monkeypatch)
    sent = walk(tmp_path)
    acts = [act for one in sent for act in find_active_markup(one)]
    assert acts == [], acts
    # The walk has been everywhere, and with hostile text wherever there could be any.
    missing = [name for name, place in _places().items() if place not in seen.drew]
    assert missing == [], missing
    assert {source for source, place in _escapes() if place not in seen.escaped} == TRUSTED_TEXTS


# What one sees of each of them where nothing is made harmless.
EFFECTS = {
    "a mention of everybody": "mention-loud",
    "a mention of somebody": '<span class="mention">@olga',
    "a disguised link": '<a href="https://evil.example"',
    "bold words": "<strong>",
    "words in italics": "<em>",
    "struck words": "<s>",
    "code": "<code>",
    "an emoji": "emoji 🎉",
    "a colour": r"unseen '\x1b'",
    "text that runs backwards": r"unseen '\u202e'",
    "a line of its own": "a line of its own",
}


@pytest.mark.malformed
def test_without_escaping_hostile_text_mentions_links_and_formats_in_slack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for module in _modules():
        for name in ESCAPES & vars(module).keys():
            monkeypatch.setattr(module, name, str)
    # A part of the walk has each of the effects.
    sent = walk(tmp_path, Walk.requests)
    acts_found = "\n".join(act for one in sent for act in find_active_markup(one))
    assert [what for what, effect in EFFECTS.items() if effect not in acts_found] == []


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "plain_text", "text": ":tada:"},
        {"type": "mrkdwn", "text": "https://evil.example"},
        {"type": "user", "user_id": "U0VICTIM"},
        {"type": "broadcast", "range": "here"},
        {"type": "usergroup", "usergroup_id": "S1"},
        {"type": "link", "url": "https://evil.example/keyturn.example.com/", "text": "details"},
        {
            "type": "date",
            "timestamp": 1,
            "format": "{date_short_pretty} {time}",
            "fallback": "now",
        },
        {
            **{"type": "date", "timestamp": 1, "format": "{date_short_pretty} {time}"},
            **{"fallback": "2026-01-01 00:00 UTC", "url": "https://evil.example"},
        },
        {"errors": {"host": "no\nApproved by Olga Owner"}},
        {"private_metadata": "\u202e"},
    ],
    ids=str,
)
def test_hostile_text_test_detects_mentions_links_and_formats(payload: dict[str, object]):
    assert len(find_active_markup({"blocks": [payload]})) == 1
