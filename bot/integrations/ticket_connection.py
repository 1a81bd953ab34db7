"""The connection to the ticket system that tickets.yaml names."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from bot.integrations import safe_http
from bot.model.tickets import TicketAnswer
from bot.policy.tickets import TicketSystem
from connectors.permissions import find_reader

# Larger than the ticket with the longest list of hosts that is plausible.
_MAX_BYTES = 1024 * 1024


class TicketError(Exception):
    """The ticket system cannot be asked, or does not know the ticket. The message says why."""


class TicketAdapter(Protocol):
    """Speaks the API of one kind of system."""

    def read_ticket(self, connection: "TicketConnection", key: str, host: str) -> TicketAnswer: ...

    def add_note(
        self, connection: "TicketConnection", key: str, text: str, note_id: str
    ) -> None: ...


class TicketConnection:
    """Sends JSON to the system that tickets.yaml names."""

    def __init__(self, system: TicketSystem) -> None:
        self.system = system

    def read_secret(self) -> str:
        """Return the secret. Raises TicketError."""
        path = Path(self.system.secret_file)
        try:
            if problem := find_reader(path):
                raise TicketError(f"tickets.yaml: secret_file: {problem}")
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TicketError(f"tickets.yaml: cannot read secret_file {path}: {error}") from None

    def build_login(self) -> dict[str, str]:
        """Return the header that authenticates by user and password, or by token."""
        secret = self.read_secret()
        if not self.system.user:
            return {"Authorization": f"Bearer {secret}"}
        pair = base64.b64encode(f"{self.system.user}:{secret}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the JSON of its answer; None for an empty one.

        Raises DeliveryError, and TicketError for an answer that is not JSON.
        """
        content = json.dumps(body).encode() if isinstance(body, Mapping) else body or b""
        answer = safe_http.request(
            method,
            f"{self.system.url}{path}",
            content,
            dict(self.build_login() if headers is None else headers),
            private=self.system.private,
            max_bytes=_MAX_BYTES,
        )
        try:
            return json.loads(answer) if answer.strip() else None
        except (ValueError, RecursionError):
            raise TicketError("its answer is not JSON") from None
