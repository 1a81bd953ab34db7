"""Messages in Exim's queue: list, remove, retry. No I/O.

Formats: exim(8) `-bp` (queue_list in Exim's queue.c), `-Mrm`, `-M`, `-Mvl`; the first part of a
message's id is the time of its arrival. A message's `-H` file in the spool has its headers, each
line after its length. PHP can be configured (mail.add_x_header) to name the script that sent a
message.
"""

import re
import string
from collections.abc import Iterator, Sequence

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.mail_message import MailMessage, MailQueue
from connectors.rows import Rows, make_odd_row, parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern

_PROGRAM = Setting("exim.program", "exim", pattern=r"[\w./-]+")
_MARK = "--- scripts"
_SCRIPT = load_script("mail-queue", argument_count=1, MARK=_MARK)
_REMOVE = load_script("mail-remove", argument_count=1)
_RETRY = load_script("mail-retry", argument_count=2)
_HINTS = (
    Hint(
        r"exim: .*not found",
        "this host has neither Exim nor Postfix; Keyturn supports no other mail server. If Exim "
        "has another name, set exim.program in the inventory",
    ),
    Hint(
        r"[Pp]ermission denied",
        "only root and Exim's administrators can read its queue: add the login's sudo rule",
    ),
)

# Exim prints neither age nor sender of a message whose envelope it cannot read, and no size where
# the data is missing. A size over 2 GiB is negative, as it overflows.
_HEAD = re.compile(
    r" *(?:(?P<age>-?\d+)(?P<unit>[smhdw]) )? *(?:(?P<size>-?[\d.]+)(?P<scale>[KM]?) )? *"
    r"(?P<id>[A-Za-z0-9]{6}-(?:[A-Za-z0-9]{6}-[A-Za-z0-9]{2}|[A-Za-z0-9]{11}-[A-Za-z0-9]{4}))"
    r"(?: <(?P<sender>.*)>(?: \(.+\))?)?(?P<frozen> \*\*\* frozen \*\*\*)?"
)
_ERROR = re.compile(r" *\*\*\* (spool .+?) \*\*\*( \*\*\* frozen \*\*\*)?")
# A "D" marks recipients that have the message already.
_RECIPIENT = re.compile(r" {7,}(?P<is_done>\+?D)? +(?P<address>\S.*)")
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_UNKNOWN = "its format is unknown"
_BYTES = {"": 1, "K": 2**10, "M": 2**20}


def query_queue() -> Query[MailQueue]:
    return Query(Shell((_SCRIPT, _PROGRAM), root=True, hints=_HINTS, deadline=120), parse_queue)


def remove_messages(message_ids: Sequence[str]) -> Shell:
    """Remove messages. One that is being delivered stays, and one that is gone is no error."""
    text = "".join(f"{message_id}\n" for message_id in message_ids)
    return Shell((_REMOVE, _PROGRAM), stdin=text, root=True, hints=_HINTS, deadline=120)


def retry_message(message_id: str) -> Shell:
    """Try to deliver a message now, and print the end of its log."""
    return Shell((_RETRY, _PROGRAM, message_id), root=True, hints=_HINTS, deadline=600)


def parse_queue(answer: str) -> MailQueue:
    listed, mark, headers = answer.rpartition(f"{_MARK}\n")
    if not mark:
        raise ParseError(f"Exim printed {answer[:200]!r} instead of a queue")
    return MailQueue(_parse_messages(listed), parse_each(headers.splitlines(), _parse_script))


def _parse_messages(listed: str) -> Rows[MailMessage]:
    """Parse all messages; one whose header is damaged is odd too, although it counts."""
    entries = ["\n".join(lines) for lines in _split_entries(listed)]
    if entries and not any(map(_match_head, entries)):
        raise ParseError(f"Exim printed {listed[:200]!r} instead of a queue")
    messages = parse_each(entries, _parse_message)
    read = {message.id for message in messages}
    damaged = [
        make_odd_row(f"{head['id']}\n{line}", "Exim cannot read all of it")
        for entry in entries
        if (head := _match_head(entry)) and head["id"] in read
        for line in entry.splitlines()[1:]
        if _ERROR.fullmatch(line)
    ]
    return Rows(messages, [*messages.odd, *damaged])


def _split_entries(listed: str) -> Iterator[list[str]]:
    """Yield the lines of each message. No empty line follows one without recipients."""
    lines = list[str]()
    for line in filter(str.strip, listed.split("\n")):
        if _HEAD.fullmatch(line) and lines:
            yield lines
            lines = []
        lines.append(line)
    if lines:
        yield lines


def _match_head(entry: str) -> re.Match[str] | None:
    return _HEAD.fullmatch(entry.partition("\n")[0])


def _parse_message(entry: str) -> MailMessage:
    _, *lines = entry.split("\n")
    head = _match_head(entry)
    errors = [error for line in lines if (error := _ERROR.fullmatch(line))]
    if head is None or head["age"] is None or head["sender"] is None:
        raise ParseError(f"Exim cannot read it ({errors[0][1]})" if errors else _UNKNOWN)
    recipients = [found for line in lines if (found := _RECIPIENT.fullmatch(line))]
    if len(recipients) + len(errors) != len(lines):
        raise ParseError(_UNKNOWN)
    return MailMessage(
        age_seconds=max(0, int(head["age"]) * _SECONDS[head["unit"]]),
        size_bytes=_parse_size(head["size"], head["scale"]),
        id=head["id"],
        sender=head["sender"],
        is_frozen=any((head["frozen"], *(error[2] for error in errors))),
        recipients=[found["address"] for found in recipients if not found["is_done"]],
        arrived_at=_parse_arrival(head["id"]),
    )


def _parse_size(size: str | None, scale: str) -> int:
    number = float(size or 0)
    return int(number * _BYTES[scale or ""]) if number >= 0 else int(number) + 2**32


def _parse_arrival(message_id: str) -> int:
    seconds = 0
    for character in message_id.partition("-")[0]:
        seconds = seconds * len(_DIGITS) + _DIGITS.index(character)
    return seconds


def _parse_script(line: str) -> str:
    found = re.fullmatch(r"\d+\S? +X-PHP-\S+: *(.*)", line, re.IGNORECASE)
    if found is None:
        raise ParseError("it is not a header of Exim's spool")
    return found[1].strip()


_ID = WordPattern(r"[A-Za-z0-9]{6}-[A-Za-z0-9]{6,11}-[A-Za-z0-9]{2,4}")
SUDO = (
    SudoRule(_SCRIPT, _PROGRAM, read_only=True),
    SudoRule(_REMOVE, _PROGRAM, risk="remove any message from the mail queue"),
    SudoRule(_RETRY, _PROGRAM, _ID),
)
