from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from connectors import clock
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.mail_message import MailMessage
from runbooks import Change, Clock, Host, Instant, NoUndo, Plan, Refused, Step
from runbooks._mail import MailServer, MessageId, read_mail_server

# Messages of one request: their ids are a part of the plan.
_MOST = 2_000
_SHOWN = 10
# In place of a sender: the messages without one.
_BOUNCES = "bounces"

Sender = Annotated[
    str,
    Field(
        pattern=r'^(bounces|[^\s<>"@]{1,64}@[A-Za-z0-9.-]{1,253})$',
        description="Whose messages are removed: an address, or bounces for those without one",
    ),
]


@dataclass(frozen=True)
class MailState:
    """The mail server and both clocks."""

    server: MailServer
    clock: Clock


class RemoveMail(
    Change[MailState], words="mail queue remove", example="mail1 sender=shop@example.com"
):
    """Remove one message from Exim's or Postfix's queue, or all messages of one sender."""

    host: Host
    message: MessageId | None = None
    sender: Sender | None = None
    # Spam keeps arriving: without a time, each new message would make the plan stale.
    before: Instant = Field(
        default_factory=lambda: datetime.now(UTC).replace(microsecond=0),
        description="Only messages that arrived before this time; now if left empty",
    )

    def read(self, run_query: QueryRunner) -> MailState:
        server = read_mail_server(run_query, self.host)
        return MailState(server, Clock.read(run_query(self.host, clock.query_clock())))

    def plan(self, state: MailState) -> Plan:
        if (self.message is None) == (self.sender is None):
            raise Refused("name either one message= or one sender=")
        messages = [*self._list_messages(state)]
        whose = self.message or f"from {self.sender}"
        if not messages:
            return Plan(f"no message {whose} waits on {self.host}")
        if len(messages) > _MOST:
            raise Refused(
                f"{len(messages):,} messages {whose} wait, and one request removes at most "
                f"{_MOST:,}: choose fewer with an earlier before="
            )
        count = format_count(len(messages), "message")
        step = Step(
            f"Remove {count} {whose}",
            self.host,
            do=state.server.remove(sorted(one.id for one in messages)),
            undo=NoUndo("a removed message is gone, and its sender gets no bounce"),
            before=count,
            after="removed",
        )
        return Plan(
            f"{count} {whose} wait on {self.host}",
            [step],
            [*_list_notes(state.server, messages)],
        )

    def _list_messages(self, state: MailState) -> Iterator[MailMessage]:
        wanted = "" if self.sender == _BOUNCES else self.sender
        for one in state.server.queue.messages:
            if self.message is not None:
                if one.id == self.message:
                    yield one
            elif one.sender == wanted:
                arrived = datetime.fromtimestamp(one.arrived_at, UTC)
                if not state.clock.is_since(arrived, self.before):
                    yield one


def _list_notes(server: MailServer, messages: Sequence[MailMessage]) -> Iterator[str]:
    recipients = sum(len(one.recipients) for one in messages)
    yield f"{recipients:,} deliveries are given up."
    for one in messages[:_SHOWN]:
        yield f"{one.id}, {one.age_seconds // 3600:,} h old, to {', '.join(one.recipients[:3])}"
    if len(messages) > _SHOWN:
        yield f"and {len(messages) - _SHOWN:,} more."
    if server.queue.unlisted_count:
        yield (
            f"{server.queue.unlisted_count:,} further messages of the queue were only counted: "
            "request it again for those."
        )
