from connectors.command import QueryRunner
from runbooks import Change, Host, NoUndo, Plan, Step
from runbooks._mail import MailServer, MessageId, read_mail_server


class RetryMail(Change[MailServer], words="mail queue retry", example="mail1 1xUjtg-00023k-1P"):
    """Try to deliver a message of Exim's or Postfix's queue now, also a frozen one."""

    host: Host
    message: MessageId

    def read(self, run_query: QueryRunner) -> MailServer:
        return read_mail_server(run_query, self.host)

    def plan(self, server: MailServer) -> Plan:
        message = server.find_message(self.message)
        if message is None:
            return Plan(f"message {self.message} does not wait on {self.host}")
        state = "is frozen" if message.is_frozen else "waits"
        step = Step(
            f"Try to deliver {message.id} now",
            self.host,
            do=server.retry(message.id),
            undo=NoUndo("a delivered message cannot be recalled"),
            before=state,
            after="delivered, or returned to its sender",
        )
        return Plan(
            f"message {message.id} from {message.sender or '<>'} {state} on {self.host}",
            [step],
            [
                f"It is for {len(message.recipients):,}: {', '.join(message.recipients[:5])}.",
                "A message that its server refuses for good is returned to its sender.",
            ],
        )
