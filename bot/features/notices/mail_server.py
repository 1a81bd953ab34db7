"""Send notices by e-mail: text only, over TLS with a verified certificate."""

import smtplib
import ssl
from contextlib import closing
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from pathlib import Path
from typing import Literal

from bot.integrations.safe_http import DeliveryError
from bot.model.text import escape_to_one_line

_SECONDS = 15.0
Encryption = Literal["starttls", "tls", "off"]


@dataclass(frozen=True)
class MailServer:
    """The mail server that takes the messages.

    encryption: `off` only for a server on this machine. password_file: read for each message.
    """

    host: str
    port: int
    sender: str
    encryption: Encryption = "starttls"
    user: str = ""
    password_file: Path | None = None

    def send(self, recipient: str, subject: str, text: str, *, message_id: str) -> None:
        """Send one message.

        Args:
            recipient: An address, such as dana@example.com.
            subject: One line; line breaks in it are escaped.
            text: The lines of the message.
            message_id: The same for each attempt, so that mail programs show one copy.

        Raises:
            DeliveryError: The server did not take it.
        """
        try:
            message = self._build_message(recipient, subject, text, message_id)
        except ValueError as error:
            raise DeliveryError(escape_to_one_line(str(error)), for_good=True) from None
        try:
            self._transmit(message, recipient)
        except smtplib.SMTPRecipientsRefused as error:
            code, reply = error.recipients[recipient]
            raise DeliveryError(
                f"status {code}: {escape_to_one_line(reply.decode(errors='replace'))[:200]}",
                for_good=code >= 500,
            ) from None
        except (OSError, ValueError) as error:
            raise DeliveryError(escape_to_one_line(str(error))[:200]) from None

    def _transmit(self, message: EmailMessage, recipient: str) -> None:
        server = self._connect()
        # Closed without a farewell after an error, for which a broken connection has no answer.
        with closing(server):
            if self.encryption == "starttls":
                server.starttls(context=ssl.create_default_context())
            if self.user:
                server.login(self.user, self._read_password())
            server.send_message(message, self.sender, [recipient])
            server.quit()

    def _build_message(
        self, recipient: str, subject: str, text: str, message_id: str
    ) -> EmailMessage:
        message = EmailMessage(policy=SMTP)
        message["From"] = Address("Keyturn", addr_spec=self.sender)
        message["To"] = Address(addr_spec=recipient)
        message["Subject"] = escape_to_one_line(subject)[:200]
        message["Date"] = formatdate()
        message["Message-ID"] = f"<{message_id}@{self.sender.rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text)
        return message

    def _connect(self) -> smtplib.SMTP:
        if self.encryption == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self.host, self.port, timeout=_SECONDS, context=context)
        return smtplib.SMTP(self.host, self.port, timeout=_SECONDS)

    def _read_password(self) -> str:
        return self.password_file.read_text().strip() if self.password_file else ""
