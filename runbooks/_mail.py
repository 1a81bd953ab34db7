"""What the runbooks of mail queues share: the queue and the connector of its mail server."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import exim, postfix
from connectors.command import QueryRunner, Shell
from connectors.mail_message import MailMessage, MailQueue

MessageId = Annotated[
    str,
    # Exim's ids before and since 4.97, and Postfix's short and long ones.
    Field(
        pattern=r"^[A-Za-z0-9]{6,20}(-[A-Za-z0-9]{6,11}-[A-Za-z0-9]{2,4})?$",
        description="The message's id, as `mailq` prints it",
    ),
]


@dataclass(frozen=True)
class MailServer:
    """The queue of a host, and the commands that change it."""

    queue: MailQueue
    is_postfix: bool = False

    def find_message(self, message_id: str) -> MailMessage | None:
        return next((one for one in self.queue.messages if one.id == message_id), None)

    def remove(self, message_ids: list[str]) -> Shell:
        return (postfix if self.is_postfix else exim).remove_messages(message_ids)

    def retry(self, message_id: str) -> Shell:
        return (postfix if self.is_postfix else exim).retry_message(message_id)


def read_mail_server(run_query: QueryRunner, host: str) -> MailServer:
    is_postfix = run_query(host, postfix.query_is_installed())
    queue = (postfix if is_postfix else exim).query_queue()
    return MailServer(run_query(host, queue), is_postfix)
