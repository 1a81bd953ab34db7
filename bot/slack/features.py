"""What features add to chat."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.db.database import Database
from bot.service import KeyturnService
from bot.slack.blocks import Message
from bot.slack.parsing import TypedCommand
from bot.slack.run_notices import BuildNotice

AnswerCommand = Callable[[TypedCommand], Message | None]
"""Answers a command; returns None if the card that follows is the answer."""


@dataclass(frozen=True)
class ChatWords:
    """Commands behind /keyturn."""

    help: Sequence[tuple[str, str]]
    """Usage and purpose, as `help` lists them."""
    build_handlers: Callable[[KeyturnService, Database], Mapping[str, AnswerCommand]]
    """Returns what answers them, by their first word."""


@dataclass(frozen=True)
class ChatFeatures:
    """The parts of all features."""

    notices: Sequence[BuildNotice] = ()
    words: Sequence[ChatWords] = ()

    @property
    def help(self) -> Sequence[tuple[str, str]]:
        """The help of all their commands."""
        return [entry for words in self.words for entry in words.help]


NO_FEATURES = ChatFeatures()
