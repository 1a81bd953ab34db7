"""Messages in Postfix's queue: list, remove, retry. No I/O.

Formats: postqueue(1) `-j`, one JSON object a line, since Postfix 3.1; postcat(1) `-h`;
postsuper(1) `-d -`, `-H`. PHP can be configured (mail.add_x_header) to name the script that sent
a message.
"""

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.mail_message import MailMessage, MailQueue
from connectors.rows import parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern

_MARK = "--- messages"
# Characters of the queue that are printed. Further messages are only counted.
_MOST = 2_500_000
# Messages whose sending script is looked up.
_OPENED = 500

_SCRIPT = load_script("postfix-queue", argument_count=0, MARK=_MARK, MOST=_MOST, OPENED=_OPENED)
_REMOVE = load_script("postfix-remove", argument_count=0)
_RETRY = load_script("postfix-retry", argument_count=1)
_HINTS = (
    Hint(
        r"illegal option|usage: postqueue",
        "this Postfix is older than 3.1 and cannot print its queue as JSON",
    ),
    Hint(
        r"[Pp]ermission denied|not permitted|not allowed",
        "only root can read all of Postfix's queue: add the login's sudo rule",
    ),
)


def query_is_installed() -> Query[bool]:
    """Query whether the host's mail server is Postfix."""
    words = ("sh", "-c", "if command -v postqueue; then :; fi")
    return Query(Shell(words), parse_is_installed)


def query_queue() -> Query[MailQueue]:
    return Query(Shell((_SCRIPT,), root=True, hints=_HINTS, deadline=120), parse_queue)


def remove_messages(message_ids: Sequence[str]) -> Shell:
    """Remove messages. One that is gone is no error."""
    text = "".join(f"{message_id}\n" for message_id in message_ids)
    return Shell((_REMOVE,), stdin=text, root=True, hints=_HINTS, deadline=120)


def retry_message(message_id: str) -> Shell:
    """Try to deliver a message now, and print it with the reason if it still waits."""
    return Shell((_RETRY, message_id), root=True, hints=_HINTS, deadline=120)


class _Recipient(BaseModel):
    address: str


class _PostqueueMessage(BaseModel):
    queue_name: str
    queue_id: str
    arrival_time: Annotated[int, Field(ge=0)]
    message_size: Annotated[int, Field(ge=0)]
    sender: str
    recipients: list[_Recipient]


def parse_is_installed(answer: str) -> bool:
    if answer and not re.fullmatch(r"/\S+/postqueue\n", answer):
        raise ParseError(f"the host printed {answer[:80]!r} instead of postqueue's path")
    return bool(answer)


def parse_queue(answer: str) -> MailQueue:
    parsed = re.fullmatch(rf"(\d{{1,11}})\n((?:.*\n)*?){_MARK} (\d+)\n((?:.*\n)*)", answer)
    if parsed is None:
        raise ParseError(f"Postfix printed {answer[:200]!r} instead of a queue")
    now, listed, count, headers = parsed.groups()
    messages = parse_each(listed.splitlines(), lambda line: _parse_message(line, int(now)))
    scripts = parse_each(filter(str.strip, headers.splitlines()), _parse_script)
    unlisted = max(0, int(count) - len(messages) - len(messages.odd))
    return MailQueue(messages, scripts, unlisted)


def _parse_message(line: str, now: int) -> MailMessage:
    try:
        parsed = _PostqueueMessage.model_validate_json(line)
    except ValidationError:
        raise ParseError("it is no message in Postfix's queue") from None
    return MailMessage(
        age_seconds=max(0, now - parsed.arrival_time),
        size_bytes=parsed.message_size,
        id=parsed.queue_id,
        # Bounces have no sender, and Postfix prints this name.
        sender="" if parsed.sender == "MAILER-DAEMON" else parsed.sender,
        is_frozen=parsed.queue_name == "hold",
        recipients=[recipient.address for recipient in parsed.recipients],
        arrived_at=parsed.arrival_time,
    )


def _parse_script(line: str) -> str:
    found = re.fullmatch(r"X-PHP-\S+: *(.*)", line, re.IGNORECASE)
    if found is None:
        raise ParseError("it is no header of a message with its script")
    return found[1].strip()


SUDO = (
    SudoRule(_SCRIPT, read_only=True),
    SudoRule(_REMOVE, risk="remove any message from the mail queue"),
    SudoRule(_RETRY, WordPattern(r"[A-Za-z0-9]{6,20}")),
)
