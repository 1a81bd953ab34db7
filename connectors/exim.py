"""Messages in Exim's queue: list, remove, retry. No I/O.

Formats: exim(8) `-bp`, `-Mrm`, `-M`, `-Mvl`; the first part of a message's id is the time of its
arrival. A message's `-H` file in the spool has its headers, each line after its length. PHP can be
configured (mail.add_x_header) to name the script that sent a message.
"""

import re
import string
from collections.abc import Iterator, Sequence

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.mail_message import MailMessage, MailQueue
from connectors.script import Script
from connectors.sudo import SudoRule, WordPattern

_PROGRAM = Setting("exim.program", "exim", pattern=r"[\w./-]+")
_MARK = "--- scripts"
_SCRIPT = Script(
    "mail-queue",
    f'"$1" -bp || exit; echo "{_MARK}"; '
    'spool=$("$1" -bP spool_directory) || exit; '
    "grep -rhoiE '^[0-9]+[ *A-Z] +X-PHP-(Originating-)?Script: .*' --include='*-H' "
    '"${spool#spool_directory = }/input"; [ $? -le 1 ]',
    argument_count=1,
)
# The ids are on standard input, one a line.
_REMOVE = Script(
    "mail-remove",
    "ids=$(cat); printf '%s\\n' \"$ids\" | LC_ALL=C grep -qvxE "
    "'[A-Za-z0-9]{6}-[A-Za-z0-9]{6,11}-[A-Za-z0-9]{2,4}' && "
    '{ echo these are not ids of messages >&2; exit 1; }; "$1" -Mrm $ids',
    argument_count=1,
)
# -M also delivers a frozen message. It waits for the end of the attempt and does not tell how it
# ended, which the message's own log does.
_RETRY = Script(
    "mail-retry",
    '"$1" -M "$2" </dev/null >/dev/null 2>&1; log=$("$1" -Mvl "$2" 2>/dev/null | tail -n 5); '
    'case $log in ""|Failed*) echo "$2 is not in the queue any more";; '
    '*) printf "%s\\n" "$log";; esac',
    argument_count=2,
)
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

_HEAD = re.compile(
    r"\s*(\d+)([smhdw])\s+([\d.]+)([KM]?)\s+([A-Za-z0-9]{6}-\S+)\s+<(.*?)>(?: \((\S+)\))?"
    r"( \*\*\* frozen \*\*\*)?"
)
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
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
    return MailQueue(tuple(_parse_messages(listed)), tuple(_parse_scripts(headers)))


def _parse_messages(listed: str) -> Iterator[MailMessage]:
    for block in re.split(r"\n\s*\n", listed.strip("\n")):
        head, *recipients = block.splitlines() or [""]
        if not head:
            return
        found = _HEAD.fullmatch(head)
        if found is None:
            raise ParseError(f"Exim's queue has an unknown line: {head[:160]!r}")
        number, unit, size, scale, name, sender, _, frozen = found.groups()
        yield MailMessage(
            age_seconds=int(number) * _SECONDS[unit],
            size_bytes=int(float(size) * _BYTES[scale]),
            id=name,
            sender=sender,
            is_frozen=bool(frozen),
            # A "D" marks recipients that have the message already.
            recipients=[line.strip() for line in recipients if not re.match(r"\s*\+?D ", line)],
            arrived_at=_parse_arrival(name),
        )


def _parse_arrival(message_id: str) -> int:
    seconds = 0
    for character in message_id.partition("-")[0]:
        seconds = seconds * len(_DIGITS) + _DIGITS.index(character)
    return seconds


def _parse_scripts(headers: str) -> Iterator[str]:
    for line in headers.splitlines():
        found = re.fullmatch(r"\d+\S? +X-PHP-\S+: *(.*)", line, re.IGNORECASE)
        if found is None:
            raise ParseError(f"Exim's spool has an unknown header: {line[:160]!r}")
        yield found[1].strip()


_ID = WordPattern(r"[A-Za-z0-9]{6}-[A-Za-z0-9]{6,11}-[A-Za-z0-9]{2,4}")
SUDO = (
    SudoRule(_SCRIPT, _PROGRAM, read_only=True),
    SudoRule(_REMOVE, _PROGRAM, risk="remove any message from the mail queue"),
    SudoRule(_RETRY, _PROGRAM, _ID),
)
