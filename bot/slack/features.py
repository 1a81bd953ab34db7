"""What features add to chat."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.db.database import Database, Transaction
from bot.model.run import Run
from bot.policy import Policy, PolicySource
from bot.queries.digest import BuildDigest
from bot.service import KeyturnService
from bot.slack.blocks import Inline, Message
from bot.slack.parsing import TypedCommand
from bot.slack.payloads import AppMessage, MessageShortcut
from bot.slack.run_notices import BuildNotice

if TYPE_CHECKING:
    from bot.slack.client import MessageSender
    from bot.slack.run_facts import SlackRunViewBuilder

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
    showing: frozenset[str] = frozenset()
    """Which of these words show one thing, or all of a kind, if at most a number follows: a click
    or a message in plain words may run them."""


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
class ChatContext:
    """From what a feature builds its part of chat."""

    service: KeyturnService
    database: Database
    policies: PolicySource
    view_builder: "SlackRunViewBuilder"
    sender: "MessageSender"
    default_channel: str
    """C…, of areas without a channel; "" without."""


AnswerShortcut = Callable[[MessageShortcut, str, Policy], Message]
"""Answers a shortcut in the menu of a message, for a person by their id, who alone sees it."""


@dataclass(frozen=True)
class ChatPart:
    """What a feature does in chat by itself."""

    shortcuts: Mapping[str, AnswerShortcut] = field(default_factory=dict[str, AnswerShortcut])
    """By callback id, which the manifest has too."""
    on_app_message: Callable[[AppMessage], None] | None = None
    """Takes what another program posts in a channel."""
    run: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Runs until it is cancelled."""


@dataclass(frozen=True)
class DirectNotice:
    """A message to one person, which is sent once."""

    person: str
    key: str
    """Names it: no other notice to this person has the same."""
    read: Callable[[Transaction], Callable[[str], Message]]
    """Reads what it says, in the transaction that claims it, and returns what builds the message
    from the address of the pages; "" if they have none."""


ListDirectNotices = Callable[[Transaction, Policy], Sequence[DirectNotice]]
"""Returns the notices that are due, sent ones too."""


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
    build_parts: Sequence[Callable[[ChatContext], ChatPart]] = ()
    list_direct_notices: Sequence[ListDirectNotices] = ()

    @property
    def help(self) -> Sequence[tuple[str, str]]:
        """The help of all their commands."""
        return [entry for words in self.words for entry in words.help]

    @property
    def showing(self) -> frozenset[str]:
        """The words of all their commands that show."""
        return frozenset(word for words in self.words for word in words.showing)


NO_FEATURES = ChatFeatures()
