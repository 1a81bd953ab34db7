"""What features add to chat."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.db.database import Database, Transaction
from bot.model.run import Run
from bot.policy import Policy
from bot.queries.digest import BuildDigest
from bot.service import KeyturnService
from bot.slack.blocks import Inline, Message
from bot.slack.parsing import TypedCommand
from bot.slack.run_notices import BuildNotice

AnswerCommand = Callable[[TypedCommand], Message | None]
"""Answers a command; returns None if the card that follows is the answer."""
IsQuiet = Callable[[Transaction, Run], bool]
"""Returns whether a run is not posted."""


@dataclass(frozen=True)
class HomeSection:
    """A section of the Home tab."""

    title: str
    items: Sequence[Sequence[Inline]]


ReadHomeSection = Callable[[Transaction], HomeSection | None]
"""Returns a section from what the reader of the Home tab may view; None for no section."""


@dataclass(frozen=True)
class ChatWords:
    """Commands behind /keyturn."""

    help: Sequence[tuple[str, str]]
    """Usage and purpose, as `help` lists them."""
    build_handlers: Callable[[KeyturnService, Database], Mapping[str, AnswerCommand]]
    """Returns what answers them, by their first word."""


@dataclass(frozen=True)
class StartedDuty:
    """A duty that has just begun."""

    person: str
    calendar: str
    areas: Sequence[str]
    """Their names; of every area if there are none."""
    starts_at: int
    """Microseconds."""
    ends_at: int


ListStartedDuties = Callable[[Transaction, Policy], Sequence[StartedDuty]]
"""Returns the duties that have begun in the last minutes, by people who had none before."""


@dataclass(frozen=True)
class ChatFeatures:
    """The parts of a feature, or of all features."""

    notices: Sequence[BuildNotice] = ()
    """Messages about a run, beside its card."""
    words: Sequence[ChatWords] = ()
    is_quiet: Sequence[IsQuiet] = ()
    read_home_section: Sequence[ReadHomeSection] = ()
    list_started_duties: Sequence[ListStartedDuties] = ()
    """Who gets a handover now."""
    handover_sections: Sequence[BuildDigest] = ()

    @property
    def help(self) -> Sequence[tuple[str, str]]:
        """The help of all their commands."""
        return [entry for words in self.words for entry in words.help]


NO_FEATURES = ChatFeatures()
