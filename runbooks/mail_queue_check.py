from collections import Counter
from collections.abc import Iterator

from connectors.amounts import format_count, format_duration, format_size
from connectors.command import QueryRunner
from connectors.mail_message import MailQueue
from runbooks import Check, Host, Report, Table
from runbooks._mail import read_mail_server

# Messages from one sender or script: more than a busy person sends, fewer than a spammer.
_MANY = 100
_DAY = 86400
_ROWS = 10


class MailQueueCheck(
    Check[MailQueue],
    words="mail queue check",
    also_called=("spam", "mail stuck"),
    example="mail1",
    columns=("sent by", "messages", "recipients"),
):
    """Check Exim's or Postfix's queue, by sender and script, and find possible spam."""

    host: Host

    def read(self, run_query: QueryRunner) -> MailQueue:
        return read_mail_server(run_query, self.host).queue

    def report(self, queue: MailQueue) -> Report:
        messages = queue.messages
        if not messages:
            return Report(f"The mail queue of {self.host} is empty")
        oldest = max(message.age_seconds for message in messages)
        size = sum(message.size_bytes for message in messages)
        frozen = sum(message.is_frozen for message in messages)
        count = len(messages) + queue.unlisted_count
        return Report.from_findings(
            f"The mail queue of {self.host} has {format_count(count, 'message')} "
            f"({format_size(size)}), {frozen:,} of them frozen; the oldest has waited for "
            f"{format_duration(oldest)}",
            [*_list_uncounted(queue), *_list_findings(queue)],
            table=Table(self.columns, [*_list_rows(queue)]),
        )


def _list_uncounted(queue: MailQueue) -> Iterator[str]:
    if queue.unlisted_count:
        yield (
            f"{queue.unlisted_count:,} messages were only counted: the figures below are for the "
            f"first {len(queue.messages):,}"
        )


def _list_findings(queue: MailQueue) -> Iterator[str]:
    senders = Counter(message.sender for message in queue.messages)
    bounces = senders.pop("", 0)
    for sender, count in senders.most_common(_ROWS):
        if count >= _MANY:
            yield (
                f"{count:,} messages are from {sender}: if that is not intended, its password or "
                "a script is compromised"
            )
    for script, count in Counter(queue.scripts).most_common(_ROWS):
        if count >= _MANY:
            yield f"{count:,} messages were sent by the script {script}: check it for spam"
    if bounces >= _MANY:
        yield (
            f"{bounces:,} are bounces that no server accepts: spam was sent with forged senders, "
            "from here or to here"
        )
    crowded = [message for message in queue.messages if len(message.recipients) >= _MANY]
    for message in crowded[:_ROWS]:
        yield (
            f"{message.id} from {message.sender or '<>'} is for {len(message.recipients):,} people"
        )
    old = sum(message.age_seconds > 3 * _DAY for message in queue.messages)
    if old:
        yield f"{old:,} have waited for over three days: their servers do not accept them"


def _list_rows(queue: MailQueue) -> Iterator[tuple[str, str, str]]:
    senders = Counter(message.sender for message in queue.messages)
    for sender, count in senders.most_common(_ROWS):
        recipients = sum(len(one.recipients) for one in queue.messages if one.sender == sender)
        yield sender or "<> (bounces)", f"{count:,}", f"{recipients:,}"
    for script, count in Counter(queue.scripts).most_common(_ROWS):
        yield f"script {script}", f"{count:,}", "-"
