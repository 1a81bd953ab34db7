"""The served application with webhooks: an incoming event, and an outgoing one."""

import json
import threading
import time
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from bot.__main__ import main
from bot.audit import change_log
from bot.db.tables import delivery
from bot.features.mcp.server import MCP_PATH, METADATA_PATH
from bot.integrations.webhook_signature import build_signature_headers
from bot.model.run import RequestOrigin, RequestTerms
from bot.slack.changed_command import answer_changed_command
from bot.slack.parsing import TypedCommand, parse_typed_text
from tests.playground import sample_company
from tests.playground.service import Service
from tests.policies import INVENTORY
from tests.runbooks.declared import load_check

UptimeCheck = load_check("uptime check")

pytestmark = pytest.mark.real

SECRET = "a-secret-of-32-letters-or-even-more"


@pytest.fixture
def heard() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def url(heard: list[dict[str, Any]]) -> Generator[str]:
    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/keyturn"
        server.shutdown()
        thread.join()


@pytest.fixture
def service(tmp_path: Path, url: str) -> Generator[Service]:
    sample_company.create_policy(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text(INVENTORY)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "hooks.yaml").write_text(
        "sources: {deploys: {secret_file: secret}}\n"
        f"subscriptions: {{wiki: {{url: '{url}', private: true, secret_file: secret, "
        "kinds: [check], events: [requested]}}\n"
    )
    with Service(tmp_path, slack="", hooks=tmp_path / "hooks.yaml") as service:
        yield service


def test_event_from_a_signed_webhook_is_found_by_the_chat_command_changed(
    service: Service,
) -> None:
    body = b'{"title": "api 2.4.1 deployed", "hosts": ["web1"]}'
    signed = build_signature_headers(SECRET.encode(), "msg_1", body, timestamp=int(time.time()))
    address = f"{service.address}/hooks/deploys"
    assert httpx2.post(address, content=body, headers=signed).status_code == 202
    assert httpx2.post(address, content=body).status_code == 401
    policy = service.keyturn.policies.get_policy()
    typed = parse_typed_text("changed 1m web*")
    command = TypedCommand("adam", policy, RequestOrigin("slack"), typed)
    answer = answer_changed_command(
        command, service.keyturn.database, person_names=policy.person_names
    )
    assert "deploys: api 2.4.1 deployed on web1" in json.dumps(answer.blocks)


def test_mcp_endpoint_for_agents_is_served_beside_the_web_pages(service: Service) -> None:
    # The library is imported now, which takes seconds on a busy machine.
    metadata = httpx2.get(f"{service.address}{METADATA_PATH}", timeout=60)
    assert (metadata.status_code, metadata.json()["scopes_supported"]) == (200, ["agent"])
    assert httpx2.post(f"{service.address}{MCP_PATH}", json={}).status_code == 401


def test_outgoing_webhook_receives_the_event_of_a_new_request(
    service: Service, heard: list[dict[str, Any]]
) -> None:
    database = service.keyturn.database
    deadline = time.monotonic() + 20
    # A new subscription is told of what happens after it was seen for the first time.
    while not heard and time.monotonic() < deadline:
        service.keyturn.service.request_run(
            UptimeCheck.model_validate({"host": "lb1"}),
            RequestTerms("dora", RequestOrigin("web"), ""),
        )
        time.sleep(0.5)
    assert heard
    assert heard[0]["event"] == "requested"
    assert heard[0]["run"]["page"].startswith(service.address)
    ready = httpx2.get(f"{service.address}/readyz").json()
    assert "subscriptions" in ready
    with database.reading() as tx:
        noted = change_log.get_last_entry_of_kind(tx, "webhooks changed")
    assert noted is not None
    assert SECRET not in noted.body


def test_failed_webhook_deliveries_are_sent_again_by_keyturn_webhooks_retry(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = service.keyturn.database
    with database.transaction() as tx:
        row = {"subscription": "wiki", "seq": 1, "run": 1, "kind": "requested", "occurred_at": 0}
        values = {**row, "attempts": 9, "next_attempt_at": 0, "error": "x", "failed_at": tx.now}
        tx.sql.execute(delivery.insert().values(values))
    monkeypatch.setenv("KEYTURN_HOOKS", str(tmp_path / "hooks.yaml"))
    monkeypatch.setenv("KEYTURN_DATA", str(tmp_path / "var"))
    monkeypatch.setenv("KEYTURN_POLICY", str(tmp_path / "policy"))
    subscriptions = httpx2.get(f"{service.address}/readyz").json()["subscriptions"]
    assert subscriptions == "0 pending, 1 failed: run `keyturn webhooks`"
    shown = CliRunner().invoke(main, ["webhooks"]).output
    assert "1 failed. To send again: keyturn webhooks --retry wiki" in shown
    result = CliRunner().invoke(main, ["webhooks", "--retry", "wiki"])
    assert result.output == "Sending 1 deliveries to wiki again.\n"
    with database.reading() as tx:
        last = change_log.get_last_entry_of_kind(tx, "deliveries retried")
    assert last is not None
    assert last.facts["entries"] == 1
