"""A ticket system on loopback: returns what a test sets, and records what it was sent."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bot.integrations.webhook_signature import check_signature

SECRET = "a-secret-of-32-letters-or-even-more"


@dataclass
class Sent:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class TicketServer:
    """status: of the next answers. answers: the JSON of each path; "" for any other."""

    url: str
    status: int = 200
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    sent: list[Sent] = field(default_factory=list[Sent])
    # The window is a part of the digest, so it stays the same.
    opened_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def notes(self) -> list[str]:
        return [one.body["text"] for one in self.sent if one.body and one.body["type"] == "note"]

    @property
    def questions(self) -> list[Any]:
        """The questions about tickets."""
        return [one.body for one in self.sent if one.body and one.body["type"] == "ticket"]

    def say(self, **changed: Any) -> None:
        """Answer each question about CHG1 with an approved ticket, changed in these fields."""
        self.answers[""] = {
            "ticket": "CHG1",
            "state": "scheduled",
            "approved": True,
            "starts_at": (self.opened_at - timedelta(hours=1)).isoformat(),
            "ends_at": (self.opened_at + timedelta(hours=2)).isoformat(),
            "hosts": ["lb1", "lb2.example.com"],
            **changed,
        }


@contextmanager
def open_ticket_server() -> Generator[TicketServer]:
    server_state = TicketServer("")

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if "webhook-id" in headers:
                at = int(headers["webhook-timestamp"])
                check_signature("standard", SECRET.encode(), headers, body, now=at)
            sent = Sent(self.command, self.path, headers, json.loads(body) if body else None)
            server_state.sent.append(sent)
            path = self.path.partition("?")[0]
            answer = server_state.answers.get(path, server_state.answers.get(""))
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(server_state.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_PATCH(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        server_state.url = f"http://127.0.0.1:{server.server_address[1]}"
        server_state.say()
        yield server_state
        server.shutdown()
        thread.join()


def write_secret(directory: Path, secret: str = SECRET) -> Path:
    file = directory / "ticket-secret"
    file.write_text(f"{secret}\n")
    file.chmod(0o600)
    return file


def write_tickets_file(policy: Path, server: TicketServer, secret_file: Path) -> None:
    """Have the policy name the server as its ticket system."""
    (policy / "tickets.yaml").write_text(
        f"system: generic\nurl: {server.url}\nsecret_file: {secret_file}\n"
        "key: CHG[0-9]+\nprivate: true\n"
    )


def require_unreachable_tickets(policy: Path, *rule_ids: str) -> None:
    """Have these rules of a policy ask for tickets of a system that does not answer."""
    file = policy / "tickets.yaml"
    file.write_text("system: generic\nurl: http://127.0.0.1:9\nsecret_file: /nonexistent\n")
    rules = policy / "policy.cedar"
    rules.write_text(require_ticket(rules.read_text(), *rule_ids))


def require_ticket(rules: str, *rule_ids: str) -> str:
    """Return the rules with @ticket on these, or on that of developers."""
    for rule_id in rule_ids or ("developers request, owners approve",):
        before = f'@id("{rule_id}")'
        assert before in rules
        rules = rules.replace(before, f"{before}\n@ticket")
    return rules
