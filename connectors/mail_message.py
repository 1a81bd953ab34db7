"""A message that waits in a mail server's queue, whichever server it is. No I/O."""

from dataclasses import dataclass, field


@dataclass
class MailMessage:
    """One message that waits. sender: "" for a bounce. age: seconds. size: bytes, rounded.

    frozen: nobody tries to deliver it before a person says so. left: to whom it is still to be
    delivered.
    """

    age_seconds: int
    size_bytes: int
    id: str
    sender: str
    is_frozen: bool
    recipients: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class MailQueue:
    """messages: all of them, or the first of very many. scripts: the script that sent it, once
    for each message where that is known. more: messages that are only counted.
    """

    messages: tuple[MailMessage, ...]
    scripts: tuple[str, ...]
    unlisted_count: int = 0
