"""A mail queue and its messages, for any mail server. No I/O."""

from dataclasses import dataclass, field


@dataclass
class MailMessage:
    """One message in the queue."""

    age_seconds: int
    size_bytes: int
    """Rounded; 0 where Exim has lost the message's data."""
    id: str
    sender: str
    """Empty for a bounce."""
    is_frozen: bool
    """Whether it is held until an administrator releases it."""
    recipients: list[str] = field(default_factory=list[str])
    """The recipients that it is still to be delivered to."""
    arrived_at: int = 0
    """By the host's clock, in seconds since 1970, UTC."""


@dataclass(frozen=True)
class MailQueue:
    """The messages that wait for delivery."""

    messages: tuple[MailMessage, ...]
    """All messages, or the first of very many."""
    scripts: tuple[str, ...]
    """The script that sent a message, once for each message where it is known."""
    unlisted_count: int = 0
    """Further messages that are only counted."""
