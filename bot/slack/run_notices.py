"""Messages of features about a run, beside its card: each is sent once, or kept current."""

from collections.abc import Callable
from dataclasses import dataclass

from bot.db.database import Transaction
from bot.model.run import Run
from bot.policy import Policy
from bot.slack.blocks import Message


@dataclass(frozen=True)
class RunNotice:
    """A message that is due."""

    slot: str
    """Its name among the messages of the run; a message with the same name is not sent again."""
    message: Message
    user: str = ""
    """U…, who gets it directly; "" for the channel of the area."""
    is_kept_current: bool = False
    """Whether the message in the channel is updated when this one differs."""


@dataclass(frozen=True)
class NoticeContext:
    """From what a notice is built."""

    tx: Transaction
    policy: Policy
    run: Run
    base_url: str
    """Of the web pages; "" without."""
    find_user: Callable[[str], str]
    """Returns the Slack user of a person: U…, or ""."""


BuildNotice = Callable[[NoticeContext], RunNotice | None]
"""Returns what is to be sent about a run as it is now; None for nothing."""
