"""Any system, by a signed POST that a few lines of a gateway answer; docs/tickets.md has them.

Source of the signature: https://www.standardwebhooks.com
"""

import json
import time
from typing import Any
from uuid import uuid4

from bot.integrations.ticket_connection import TicketConnection, TicketError
from bot.integrations.webhook_signature import build_signature_headers, parse_secret
from bot.model.tickets import TicketAnswer, parse_hosts, parse_window_time


def read_ticket(connection: TicketConnection, key: str, host: str) -> TicketAnswer:
    """Return the ticket."""
    question = {"type": "ticket", "ticket": key, "hosts": [host]}
    found = _post(connection, question, str(uuid4()))
    hosts = found["hosts"]
    return TicketAnswer(
        key=found["ticket"],
        state=str(found["state"])[:100],
        is_approved=found["approved"] is True,
        starts_at=parse_window_time(found.get("starts_at")),
        ends_at=parse_window_time(found.get("ends_at")),
        hosts=None if hosts is None else parse_hosts(hosts),
    )


def add_note(connection: TicketConnection, key: str, text: str, note_id: str) -> None:
    """Add a note to the ticket."""
    _post(connection, {"type": "note", "ticket": key, "text": text}, note_id)


def _post(connection: TicketConnection, content: dict[str, Any], message_id: str) -> Any:
    try:
        secret = parse_secret(connection.read_secret())
    except ValueError as error:
        raise TicketError(f"tickets.yaml: the secret is not valid: {error}") from None
    body = json.dumps(content).encode()
    headers = build_signature_headers(secret, message_id, body, timestamp=int(time.time()))
    return connection.send("POST", "", body, headers)
