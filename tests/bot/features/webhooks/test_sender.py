"""Outgoing webhooks: signed, in order, at least once, and never to private addresses."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import update

from bot.api.app import build_api
from bot.api.deps import ApiParts
from bot.api.run_event import RunEventOut
from bot.api.schemas import RunOut
from bot.audit import change_log
from bot.db.tables import delivery
from bot.features.webhooks.config import WebhookSubscription, load_webhook_config
from bot.features.webhooks.payloads import build_payload
from bot.features.webhooks.server import WebhookSender
from bot.integrations import safe_http, webhook_queue
from bot.integrations.safe_http import DeliveryError
from bot.integrations.webhook_queue import describe_deliveries
from bot.model.run import Decision, RequestTerms, Run, State
from connectors.https import Resolve, find_addresses, resolve_name
from tests.bot.harness import WEB, Harness
from tests.toy import SetSwitch

SECRET = b"a-secret-of-32-letters-or-even-more"
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
NOW = 1_800_000_000
ENDS_OF_CHANGES = ("succeeded", "failed", "stopped")


@dataclass
class Listener:
    """An endpoint that answers as it is told to. status: by turns, the last for good."""

    url: str = ""
    statuses: list[int] = field(default_factory=lambda: [204])
    heard: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    bodies: list[bytes] = field(default_factory=list[bytes])
    paths: list[str] = field(default_factory=list[str])

    @property
    def events(self) -> list[tuple[int, str]]:
        return [(one["run"]["id"], one["event"]) for one in self.heard]


@pytest.fixture
def listener() -> Generator[Listener]:
    started = Listener()

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = started.statuses[0] if len(started.statuses) == 1 else started.statuses.pop(0)
            started.paths.append(self.path)
            if status < 300:
                started.heard.append(json.loads(body))
                started.bodies.append(body)
                started.headers.append(
                    {name.lower(): value for name, value in self.headers.items()}
                )
            self.send_response(status)
            if status in {301, 302, 307, 308}:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        started.url = f"http://127.0.0.1:{server.server_address[1]}/keyturn?to=us"
        yield started
        server.shutdown()
        thread.join()


def create_sender(harness: Harness, url: str, **more: Any) -> WebhookSender:
    """A subscription that has begun: started of whatever happens from now on."""
    to = WebhookSubscription("wiki", url, SECRET, ("change",), (), (), private=True)
    sender = WebhookSender(
        replace(to, **more), harness.database, "http://keyturn.test", clock=lambda: NOW
    )
    sender.send_due()
    return sender


def send_all(sender: WebhookSender) -> None:
    while sender.send_due():
        pass


def _make_retries_due(harness: Harness) -> None:
    """Let the time pass until what failed is tried again."""
    with harness.database.transaction() as tx:
        tx.sql.execute(update(delivery).values(next_attempt_at=0))


def _list_expected_events(harness: Harness, run: Run) -> list[tuple[int, str]]:
    return [
        (run.id, kind) for kind in harness.list_entry_kinds(run) if kind not in webhook_queue.QUIET
    ]


def test_subscription_receives_all_events_of_a_run_in_order(
    db_harness: Harness, listener: Listener
) -> None:
    harness = db_harness
    sender = create_sender(harness, listener.url)
    run = harness.approve(harness.request(LAMP_ON))
    send_all(sender)
    assert listener.events == _list_expected_events(harness, run)
    assert listener.events[-1] == (run.id, "succeeded")
    assert [one["entry"] for one in listener.heard] == sorted(
        one["entry"] for one in listener.heard
    )
    assert listener.heard[-1]["run"]["approved_by"] == ["olga"]
    assert listener.paths[0] == "/keyturn?to=us"
    for body in listener.bodies:
        RunEventOut.model_validate_json(body)
    assert sender.send_due() is False


def test_outgoing_webhook_is_signed_by_the_standard_webhooks_scheme(
    harness: Harness, listener: Listener
) -> None:
    sender = create_sender(harness, listener.url)
    harness.request(LAMP_ON)
    send_all(sender)
    for headers, body in zip(listener.headers, listener.bodies, strict=True):
        name, at = headers["webhook-id"], headers["webhook-timestamp"]
        made = hmac.digest(SECRET, f"{name}.{at}.".encode() + body, hashlib.sha256)
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(made).decode()}"
        assert at == str(NOW)
    assert len({headers["webhook-id"] for headers in listener.headers}) == len(listener.headers)


def test_cloud_events_carry_the_event_as_data_under_the_same_signature(
    harness: Harness, listener: Listener
) -> None:
    """The rules are those of the CloudEvents specification 1.0.2, its JSON format and HTTP."""
    sender = create_sender(harness, listener.url, format="cloudevents")
    run = harness.approve(harness.request(LAMP_ON))
    send_all(sender)
    assert [one["type"] for one in listener.heard] == [
        f"keyturn.run.{kind.replace(' ', '_')}" for _, kind in _list_expected_events(harness, run)
    ]
    for headers, body, event in zip(
        listener.headers, listener.bodies, listener.heard, strict=True
    ):
        assert headers["content-type"] == "application/cloudevents+json; charset=UTF-8"
        assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in event)
        data = RunEventOut.model_validate(event.pop("data"))
        assert event == {
            "specversion": "1.0",
            "id": str(data.entry),
            "source": "http://keyturn.test",
            "type": event["type"],
            "subject": f"runs/{run.id}",
            "time": event["time"],
            "datacontenttype": "application/json",
        }
        assert datetime.fromisoformat(event["time"]) == data.at
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        made = hmac.digest(SECRET, signed, hashlib.sha256)
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(made).decode()}"
    assert len({event["id"] for event in listener.heard}) == len(listener.heard)


def _read_annotation(headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
    """Accept what Grafana does: pkg/api/annotations.go, and validateTagsLength of its store."""
    assert headers["authorization"] == f"Bearer {SECRET.decode()}"
    assert headers["content-type"] == "application/json"
    assert set(body) <= {"dashboardUID", "panelId", "time", "timeEnd", "text", "tags", "data"}
    assert body["text"]
    assert isinstance(body["time"], int)
    assert isinstance(body["timeEnd"], int)
    assert body["timeEnd"] >= body["time"] > 1_500_000_000_000
    assert len(json.dumps(body["tags"], separators=(",", ":"))) <= 500
    return body


def test_end_of_a_change_is_an_annotation_of_grafana(harness: Harness, listener: Listener) -> None:
    events = (*ENDS_OF_CHANGES, "denied")
    sender = create_sender(harness, listener.url, format="grafana", events=events)
    run = harness.approve(harness.request(LAMP_ON))
    unchanged = harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
    harness.service.deny_run(unchanged.id, person="olga", reason="not today")
    send_all(sender)
    (body,) = listener.heard
    assert _read_annotation(listener.headers[0], body) == {
        "time": (run.started_at or 0) // 1000,
        "timeEnd": (run.ended_at or 0) // 1000,
        "tags": ["keyturn", "succeeded", run.runbook, run.area, "lb1"],
        "text": f'<a href="http://keyturn.test/runs/{run.id}">Run {run.id}</a>: {run.title}. '
        "succeeded, requested by dora, approved by olga",
    }
    assert "webhook-signature" not in listener.headers[0]


def test_change_of_two_hosts_is_one_annotation(harness: Harness, listener: Listener) -> None:
    sender = create_sender(harness, listener.url, format="grafana", events=ENDS_OF_CHANGES)
    requests = [SetSwitch(host=name, name="lamp", value="on") for name in ("lb1", "lb2")]
    asked = harness.service.request_on_hosts(
        requests, RequestTerms("dora", WEB), host_pattern="lb*"
    )
    harness.run_queued_work()
    run = harness.approve(harness.get_run(asked.id))
    assert run.state is State.SUCCEEDED
    send_all(sender)
    (body,) = listener.heard
    tags = _read_annotation(listener.headers[0], body)["tags"]
    assert tags == ["keyturn", "succeeded", run.runbook, run.area, "lb1", "lb2"]


def test_annotation_has_as_many_hosts_as_grafana_accepts(harness: Harness) -> None:
    run = harness.approve(harness.request(LAMP_ON))
    names = [f"lb{n:02}" for n in range(99)]
    tags = _build_annotation(replace(run, hosts=names))["tags"]
    assert tags[4:] == names[: len(tags) - 4]
    assert len(tags) > 60


def test_text_of_an_annotation_is_no_html(harness: Harness) -> None:
    """Grafana shows it as HTML."""
    run = harness.approve(harness.request(LAMP_ON))
    text = _build_annotation(replace(run, request="<b>x</b>"))["text"]
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert "<b>" not in text


def _build_annotation(run: Run) -> dict[str, Any]:
    event = RunEventOut(
        type="run",
        event="succeeded",
        entry=1,
        at=datetime.now(UTC),
        run=RunOut.from_run(run, [], "http://keyturn.test"),
    )
    to = WebhookSubscription("g", "", SECRET, (), (), (), private=True, format="grafana")
    payload = build_payload(to, event, "http://keyturn.test", timestamp=NOW)
    assert payload is not None
    headers = {name.lower(): value for name, value in payload.headers.items()}
    return _read_annotation(
        {"content-type": "application/json"} | headers, json.loads(payload.body)
    )


def test_new_subscription_receives_only_later_events(harness: Harness, listener: Listener) -> None:
    harness.request(LAMP_ON)
    sender = create_sender(harness, listener.url)
    send_all(sender)
    assert listener.heard == []


@pytest.mark.parametrize(
    ("more", "heard"),
    [
        ({"areas": ("storage",)}, []),
        ({"kinds": ("check",)}, []),
        ({"events": ("planned", "succeeded")}, ["planned", "succeeded"]),
    ],
)
def test_subscription_filters_events_by_area_kind_and_event(
    harness: Harness, listener: Listener, more: dict[str, Any], heard: list[str]
) -> None:
    sender = create_sender(harness, listener.url, **more)
    harness.approve(harness.request(LAMP_ON))
    send_all(sender)
    assert [event for _, event in listener.events] == heard


def test_failed_delivery_is_retried_and_holds_later_events_of_its_run(
    harness: Harness, listener: Listener
) -> None:
    sender = create_sender(harness, listener.url, events=("requested", "planned"))
    listener.statuses = [503, 204]
    first = harness.request(LAMP_ON)
    second = harness.request(LAMP_ON, person="stan")
    send_all(sender)
    # The other run is not held up, and of the first nothing is told out of turn.
    assert listener.events == _list_expected_events(harness, second)[:2]
    _make_retries_due(harness)
    send_all(sender)
    assert listener.events[2:] == _list_expected_events(harness, first)[:2]


def test_without_ordering_by_run_events_are_delivered_out_of_order(
    harness: Harness, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = webhook_queue.list_due_deliveries

    def all_at_once(
        tx: Any, name: str, *, most: int = 20
    ) -> Sequence[webhook_queue.PendingDelivery]:
        rows = tx.sql.execute(delivery.select().where(delivery.c.next_attempt_at <= tx.now))
        deliveries = [
            webhook_queue.PendingDelivery(
                r.subscription, r.seq, r.run, r.kind, r.occurred_at, r.attempts
            )
            for r in rows
        ]
        return deliveries or real(tx, name, most=most)

    monkeypatch.setattr(webhook_queue, "list_due_deliveries", all_at_once)
    sender = create_sender(harness, listener.url, events=("requested", "planned"))
    listener.statuses = [503, 204]
    harness.request(LAMP_ON)
    send_all(sender)
    _make_retries_due(harness)
    send_all(sender)
    assert [event for _, event in listener.events] == ["planned", "requested"]


def test_repeated_delivery_has_the_same_webhook_id(harness: Harness, listener: Listener) -> None:
    """Whoever dies between sending and noting it sends it once more."""
    sender = create_sender(harness, listener.url, events=("requested",))
    harness.request(LAMP_ON)
    with harness.database.reading() as tx:
        before = tx.sql.execute(delivery.select()).all()
    assert before == []
    sender.send_due()
    with harness.database.transaction() as tx:
        entry = listener.heard[0]["entry"]
        row = {
            "subscription": "wiki",
            "seq": entry,
            "run": 1,
            "kind": "requested",
            "occurred_at": 0,
        }
        tx.sql.execute(delivery.insert().values(**row, attempts=0, next_attempt_at=0, error=""))
    sender.send_due()
    first, second = listener.headers
    assert first["webhook-id"] == second["webhook-id"] == f"wiki-{entry}"


def test_delivery_claimed_by_another_process_is_not_sent(
    harness: Harness, listener: Listener
) -> None:
    sender = create_sender(harness, listener.url, events=("requested",))
    harness.request(LAMP_ON)
    with harness.database.transaction() as tx:
        webhook_queue.read_new_entries(
            tx, "wiki", webhook_queue.SubscriptionFilter(("change",), frozenset(), ("requested",))
        )
    with harness.database.transaction() as tx:
        (item,) = webhook_queue.list_due_deliveries(tx, "wiki")
        assert webhook_queue.claim_delivery(tx, item, seconds=60)
        assert not webhook_queue.claim_delivery(tx, item, seconds=60)
    assert sender.send_due() is False
    assert listener.heard == []


def test_failing_delivery_is_given_up_reported_and_retried_on_demand(
    harness: Harness, listener: Listener
) -> None:
    sender = create_sender(harness, listener.url, events=("requested",))
    listener.statuses = [500]
    harness.request(LAMP_ON)
    for _ in range(webhook_queue.MOST_TRIES + 3):
        send_all(sender)
        _make_retries_due(harness)
    assert len(listener.paths) == webhook_queue.MOST_TRIES
    assert describe_deliveries(harness.database) == "0 pending, 1 failed: run `keyturn webhooks`"
    listener.statuses = [204]
    with harness.database.transaction() as tx:
        assert webhook_queue.retry_failed(tx, "wiki") == 1
    send_all(sender)
    assert len(listener.heard) == 1
    assert describe_deliveries(harness.database) == "all delivered"


def test_internal_error_of_a_delivery_is_an_attempt_and_delays_no_other(
    harness: Harness, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = create_sender(harness, listener.url, events=("requested",))
    first, second = harness.request(LAMP_ON), harness.request(LAMP_ON, person="stan")
    genuine = RunOut.from_run

    def faulty(run: Run, votes: Sequence[Decision], base_url: str) -> RunOut:
        if run.id == first.id:
            raise ValueError("nobody thought of this")
        return genuine(run, votes, base_url)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(RunOut, "from_run", faulty)
        for _ in range(webhook_queue.MOST_TRIES + 3):
            send_all(sender)
            _make_retries_due(harness)
    assert listener.events == [(second.id, "requested")]
    with harness.database.reading() as tx:
        row = tx.sql.execute(delivery.select()).one()
    assert (row.attempts, row.failed_at is None) == (webhook_queue.MOST_TRIES, False)
    assert row.error == "internal error: ValueError"
    with harness.database.transaction() as tx:
        webhook_queue.retry_failed(tx, "wiki")
    send_all(sender)
    assert listener.events[1:] == [(first.id, "requested")]


@contextmanager
def _slow_server(stop: threading.Event) -> Generator[str]:
    """Answer with one letter of a header after the other, for as long as one listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send_slowly() -> None:
            client, _ = server.accept()
            with client, suppress(OSError):
                client.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not stop.wait(0.02):
                    client.sendall(b"x")

        thread = threading.Thread(target=send_slowly, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        stop.set()
        thread.join()


def post(
    url: str, *, private: bool = True, resolve: Resolve = resolve_name, seconds: float = 20
) -> None:
    safe_http.request(
        "POST", url, b"{}", {}, private=private, resolve=resolve, seconds=seconds, max_bytes=0
    )


def test_slow_webhook_response_ends_at_the_total_time_limit() -> None:
    with (
        _slow_server(threading.Event()) as url,
        pytest.raises(DeliveryError, match="no complete response within"),
    ):
        post(url, seconds=0.3)


def test_without_a_total_time_limit_a_slow_response_never_times_out() -> None:
    """Each of the client's own limits is of one stroke: none of them ever comes."""
    with (
        _slow_server(threading.Event()) as url,
        httpx2.Client(timeout=0.5, trust_env=False) as client,
    ):
        ended = threading.Event()

        def post() -> None:
            with suppress(httpx2.HTTPError):
                client.post(url)
            ended.set()

        sending = threading.Thread(target=post, daemon=True)
        sending.start()
        assert not ended.wait(0.7)
    sending.join(10)


def test_delivery_with_status_410_is_not_retried(harness: Harness, listener: Listener) -> None:
    sender = create_sender(harness, listener.url, events=("requested",))
    listener.statuses = [410]
    harness.request(LAMP_ON)
    send_all(sender)
    _make_retries_due(harness)
    send_all(sender)
    assert len(listener.paths) == 1


def test_webhook_retry_delay_doubles_with_each_failure(
    harness: Harness, listener: Listener
) -> None:
    sender = create_sender(harness, listener.url, events=("requested",))
    listener.statuses = [500]
    harness.request(LAMP_ON)
    waits: list[int] = []
    for _ in range(4):
        sender.send_due()
        with harness.database.reading() as tx:
            (row,) = tx.sql.execute(delivery.select()).all()
            waits.append(round((row.next_attempt_at - tx.now) / 1_000_000))
        _make_retries_due(harness)
    assert waits == [5, 10, 20, 40]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_of_a_webhook_receiver_is_not_followed(
    harness: Harness, listener: Listener, status: int
) -> None:
    sender = create_sender(harness, listener.url, events=("requested",))
    listener.statuses = [status]
    harness.request(LAMP_ON)
    send_all(sender)
    assert listener.paths == ["/keyturn?to=us"]
    with harness.database.reading() as tx:
        assert tx.sql.execute(delivery.select()).one().error == f"it returned status {status}"


# --- where it goes ---

PRIVATE_ADDRESSES = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "0.0.0.1", "224.0.0.1", "::1", "fe80::1", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1",
    "2002:a00:1::", "fe80::1%eth0",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
def test_webhook_to_a_private_address_is_refused(address: str) -> None:
    for before in ([], ["93.184.215.14"]):
        answer = partial(_resolve_to, [*before, address])
        with pytest.raises(DeliveryError, match="not public"):
            post("https://evil.example", private=False, resolve=answer)


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "fd00:ec2::254", "224.0.0.1"])
def test_private_webhook_never_goes_to_link_local_or_metadata_addresses(address: str) -> None:
    answer = partial(_resolve_to, ["10.0.0.1", address])
    with pytest.raises(DeliveryError, match=f"{address}, which is not public and never contacted"):
        post("https://evil.example", resolve=answer)
    # The twin without it.
    rule = safe_http.build_address_rule("https://wiki.example", private=True)
    answer = partial(_resolve_to, ["10.0.0.1"])
    found = asyncio.run(find_addresses("https://wiki.example", rule, answer))
    assert found == [ip_address("10.0.0.1")]


def _resolve_to(answer: Sequence[str], _name: str, _port: int) -> Sequence[str]:
    return answer


def test_webhook_to_localhost_is_not_sent_without_private(
    harness: Harness, listener: Listener
) -> None:
    sender = create_sender(harness, listener.url, private=False, events=("requested",))
    harness.request(LAMP_ON)
    send_all(sender)
    assert listener.paths == []
    with harness.database.reading() as tx:
        assert "not public" in tx.sql.execute(delivery.select()).one().error


def test_without_the_public_address_check_a_webhook_reaches_localhost(
    harness: Harness, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_http, "is_public", bool)
    sender = create_sender(harness, listener.url, private=False, events=("requested",))
    harness.request(LAMP_ON)
    send_all(sender)
    assert listener.paths == ["/keyturn?to=us"]


def test_webhook_host_name_is_resolved_once_against_dns_rebinding(listener: Listener) -> None:
    """DNS rebinding: the second answer would be another one."""
    asked: list[str] = []

    def resolve(name: str, _port: int) -> Sequence[str]:
        asked.append(name)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    url = listener.url.replace("127.0.0.1", "hooks.example.com")
    post(url, resolve=resolve)
    assert asked == ["hooks.example.com"]
    assert listener.headers[0]["host"].startswith("hooks.example.com:")


def test_slow_name_lookup_of_a_webhook_times_out() -> None:
    answered = threading.Event()

    def resolve(_name: str, _port: int) -> Sequence[str]:
        answered.wait(20)
        return ["127.0.0.1"]

    url = "http://hooks.example.com:9/"
    with pytest.raises(DeliveryError, match="the name lookup took longer than"):
        post(url, resolve=resolve, seconds=0.2)
    answered.set()


def test_webhook_over_plain_http_is_sent_to_this_machine_only() -> None:
    with pytest.raises(DeliveryError, match="not this machine"):
        post("http://nas.example", resolve=lambda _n, _p: ["192.168.1.1"])


def test_unresolvable_webhook_host_name_is_reported() -> None:
    def nobody(_name: str, _port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    with pytest.raises(DeliveryError, match="cannot resolve"):
        post("https://nope.example", private=False, resolve=nobody)


def test_webhook_is_not_sent_to_a_server_without_a_valid_certificate(listener: Listener) -> None:
    url = listener.url.replace("http:", "https:")
    with pytest.raises(DeliveryError):
        post(url)
    assert listener.paths == []


def test_openapi_document_describes_outgoing_webhooks(harness: Harness) -> None:
    parts = ApiParts(harness.service, harness.database, harness.policies, "http://keyturn.test")
    described = build_api(parts).openapi()
    operation = described["webhooks"]["run"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "/RunEventOut"
    )
    assert "RunEventOut" in described["components"]["schemas"]


def test_webhook_secret_is_neither_sent_nor_logged(harness: Harness, listener: Listener) -> None:
    sender = create_sender(harness, listener.url)
    harness.request(LAMP_ON)
    send_all(sender)
    assert SECRET not in b"".join(listener.bodies) + repr(listener.headers).encode()
    with harness.database.reading() as tx:
        assert all(
            SECRET.decode() not in entry.body for entry in change_log.list_entries_after(tx, 0)
        )


def test_delivery_for_a_missing_run_fails_without_delaying_others(
    harness: Harness, listener: Listener
) -> None:
    sender = create_sender(harness, listener.url, events=("requested",))
    with harness.database.transaction() as tx:
        row = {"subscription": "wiki", "seq": 0, "run": 99, "kind": "requested", "occurred_at": 0}
        tx.sql.execute(delivery.insert().values(**row, attempts=0, next_attempt_at=0, error=""))
    run = harness.request(LAMP_ON)
    send_all(sender)
    assert listener.events == [(run.id, "requested")]
    assert describe_deliveries(harness.database).startswith("0 pending, 1 failed")


def test_subscriptions_of_the_page_on_integrations_are_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "integrations.md").read_text()
    blocks = re.findall(r"(?ms)^```yaml\n(subscriptions:.*?)^```", page)
    (tmp_path / "secrets").mkdir()
    found: set[str] = set()
    for block in blocks:
        for name in re.findall(r"secret_file: (\S+)", block):
            (tmp_path / name).write_text(SECRET.decode())
        (tmp_path / "hooks.yaml").write_text(block)
        (one,) = load_webhook_config(tmp_path / "hooks.yaml").subscriptions.values()
        found.add(one.format)
        if one.format == "grafana":
            assert tuple(one.events) == ENDS_OF_CHANGES
    assert found == {"grafana", "cloudevents"}
