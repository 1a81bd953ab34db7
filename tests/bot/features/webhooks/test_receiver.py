"""Incoming webhooks: signatures, formats, limits and hostile text."""

import base64
import hashlib
import hmac
import json
from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient
from httpx2 import Response

from bot.api import schemas
from bot.audit import change_log
from bot.cli.context import CommandEnvironment
from bot.db.database import Database
from bot.features.webhooks import receiver as webhooks_in
from bot.features.webhooks.commands import show_webhooks as command
from bot.features.webhooks.config import (
    WebhookConfigError,
    load_webhook_config,
    render_webhook_config,
)
from bot.features.webhooks.receiver import WebhookReceiver
from bot.integrations import webhook_signature
from bot.queries.timeline import build_timeline, describe_event
from bot.settings import Settings
from tests.bot.harness import Harness

NOW = 1_800_000_000
SECRET = "a-secret-of-32-letters-or-even-more"
OTHER = "another-secret-of-32-letters-or-so"
FILE = """\
sources:
  deploys: {secret_file: secrets/deploys, a_minute: 20}
  alerts: {format: alertmanager, secret_env: KEYTURN_TEST_HOOK}
  github: {format: github, secret_file: secrets/github}
"""


def _sign(
    body: bytes, *, secret: str = SECRET, name: str = "msg_1", at: int = NOW
) -> dict[str, str]:
    """As the standard says, spelt out: not by the code that is tested."""
    made = hmac.digest(secret.encode(), f"{name}.{at}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
    }


@dataclass
class Receiver:
    harness: Harness
    client: TestClient

    def post(self, source: str, body: bytes, headers: dict[str, str]) -> Response:
        return self.client.post(f"/{source}", content=body, headers=headers)

    def tell(self, name: str = "msg_1", **body: Any) -> Response:
        raw = json.dumps({"title": "api 2.4.1 deployed", **body}).encode()
        return self.post("deploys", raw, _sign(raw, name=name))

    def events(self) -> list[change_log.Entry]:
        with self.harness.database.reading() as tx:
            return [
                entry for entry in change_log.list_entries_after(tx, 0) if entry.kind == "event"
            ]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secrets").mkdir()
    for name in ("deploys", "github"):
        (tmp_path / "secrets" / name).write_text(f"{SECRET}\n")
    monkeypatch.setenv("KEYTURN_TEST_HOOK", SECRET)
    file = tmp_path / "hooks.yaml"
    file.write_text(FILE)
    return file


@pytest.fixture
def receiver(harness: Harness, file: Path) -> Generator[Receiver]:
    incoming = WebhookReceiver(
        load_webhook_config(file),
        harness.database,
        harness.policies,
        clock=lambda: NOW + 0.5,
    )
    with TestClient(webhooks_in.build_webhook_app(incoming, secure=False)) as client:
        yield Receiver(harness, client)


def test_webhook_event_is_listed_with_the_changes_of_its_hosts(receiver: Receiver) -> None:
    answer = receiver.tell(
        hosts=["web1.example.com:443", "lb2"],
        category="deployment",
        person="pipeline",
        url="https://ci.example.com/77",
        at="2026-03-01T02:00:00+01:00",
    )
    assert answer.status_code == 202
    (entry,) = receiver.events()
    assert answer.json() == {"entries": [entry.seq]}
    assert entry.facts["hosts"] == ["web1", "lb2"]
    assert entry.facts["occurred_at"] == 1_772_326_800_000_000
    with receiver.harness.database.reading() as tx:
        events = {
            host: build_timeline(tx, tx.now, span=10**9, host_pattern=host).events
            for host in ("web*", "nas1")
        }
    assert [describe_event(one) for one in events["web*"]] == [
        "deploys: api 2.4.1 deployed on web1, lb2"
    ]
    assert events["nas1"] == []


def test_repeated_webhook_event_is_recorded_once(receiver: Receiver) -> None:
    assert [len(receiver.tell("msg_7").json()["entries"]) for _ in range(3)] == [1, 0, 0]
    assert receiver.tell("msg_8").json()["entries"]
    assert len(receiver.events()) == 2


RAW = b'{"title": "x"}'
FORGED = {
    "nothing": {},
    "another secret": _sign(RAW, secret=OTHER),
    "another body": _sign(b'{"title": "y"}'),
    "another id": {**_sign(RAW), "webhook-id": "msg_2"},
    "another time": {**_sign(RAW), "webhook-timestamp": str(NOW + 1)},
    "too long ago": _sign(RAW, at=NOW - webhook_signature.MAX_AGE_SECONDS - 1),
    "too early": _sign(RAW, at=NOW + webhook_signature.MAX_AGE_SECONDS + 1),
    "an empty signature": {**_sign(RAW), "webhook-signature": "v1,"},
    "another version": {
        **_sign(RAW),
        "webhook-signature": _sign(RAW)["webhook-signature"].replace("v1,", "v1a,"),
    },
    "no id": _sign(RAW, name=""),
    "GitHub's way": {"x-hub-signature-256": "sha256=" + "0" * 64},
    "the bare secret": {"authorization": f"Bearer {SECRET}"},
    "strange letters": {"webhook-signature": "v1,\xe9", "webhook-id": "\xe9"},
}


@pytest.mark.parametrize("how", FORGED)
def test_webhook_with_an_invalid_signature_is_refused(receiver: Receiver, how: str) -> None:
    headers = {name: value.encode("latin-1") for name, value in FORGED[how].items()}
    answer = receiver.client.post(
        "/deploys",
        content=RAW,
        headers=[(name.encode(), value) for name, value in headers.items()],
    )
    assert answer.status_code == 401
    assert receiver.events() == []
    assert (
        answer.json()["detail"]
        == "The signature does not match a known source: check its name and secret."
    )


def test_without_the_signature_check_an_unsigned_webhook_is_accepted(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def anybody(*_: object, **__: object) -> None: ...

    monkeypatch.setattr(webhooks_in, "check_signature", anybody)
    assert receiver.post("deploys", RAW, {}).status_code == 202


def test_without_the_age_limit_an_old_webhook_is_accepted(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _sign(RAW, at=NOW - 86400)
    assert receiver.post("deploys", RAW, old).status_code == 401
    monkeypatch.setattr(webhook_signature, "MAX_AGE_SECONDS", 10**9)
    assert receiver.post("deploys", RAW, old).status_code == 202


def test_refused_webhook_does_not_reveal_whether_the_source_exists(receiver: Receiver) -> None:
    known, unknown = (receiver.post(name, RAW, {}) for name in ("deploys", "nobody"))
    assert {**known.json(), "instance": ""} == {**unknown.json(), "instance": ""}
    with receiver.harness.database.reading() as tx:
        last = change_log.list_newest_entries(tx, limit=1)[0]
    assert (last.kind, last.facts["source"]) == ("webhook refused", "deploys")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'{"title": ""}',
        b'{"title": 5}',
        b'{"title": "x", "hosts": "lb1"}',
        b'{"title": "x", "at": "tomorrow"}',
        b'{"title": "x", "at": "2026-03-01T02:00:00"}',
        b'{"title": "x", "by": "nobody"}',
        b'{"title": "' + b"x" * 300 + b'"}',
        b'{"title": "\xff"}',
        b'{"title": "\\ud800"}',
        b"[" * 100_000,
    ],
)
def test_malformed_webhook_is_refused_with_an_explanation(receiver: Receiver, body: bytes) -> None:
    answer = receiver.post("deploys", body, _sign(body))
    assert answer.status_code == 422
    assert answer.json()["detail"]
    assert receiver.events() == []


def test_oversized_webhook_gets_413(receiver: Receiver) -> None:
    body = b'{"title": "' + b"x" * 300_000 + b'"}'
    assert receiver.post("deploys", body, _sign(body)).status_code == 413


def test_webhook_source_over_its_rate_limit_gets_429(receiver: Receiver) -> None:
    answers = [receiver.tell(f"msg_{n}") for n in range(22)]
    assert [answer.status_code for answer in answers] == [202] * 20 + [429] * 2
    assert answers[-1].headers["retry-after"] == "60"
    assert len(receiver.events()) == 20


def test_hostile_webhook_text_is_escaped(receiver: Receiver) -> None:
    hostile = "\x1b]0;owned\x07 <!channel> <script>alert(1)</script> \u202e *x*\r\n"
    answer = receiver.tell(
        title=hostile,
        hosts=["lb1; rm -rf /", "../etc", "-oProxyCommand=x", "lb1"],
        detail=hostile,
        person=hostile,
        url="javascript:alert(1)",
    )
    assert answer.status_code == 202
    (entry,) = receiver.events()
    assert entry.facts["hosts"] == ["lb1"]
    assert "url" not in entry.facts
    assert "\\x1b]0;owned\\x07" in entry.facts["title"]
    assert all(ord(letter) >= 32 and letter != "\u202e" for letter in entry.facts["title"])


@pytest.mark.parametrize(
    "url",
    [
        "https://ci.example.com/\r\nSet-Cookie: x",
        "https://ci.example.com/\x1b]8;;",
        "https://ci.example.com/\u202efdp.exe",
        "https://ci.example.com/\u200b7",
        "https://ci.example.com/ 7",
        "https://ci.example.com/" + "7" * 500,
        "ftp://ci.example.com/7",
    ],
)
def test_unsafe_link_in_a_webhook_is_left_out(receiver: Receiver, url: str) -> None:
    assert receiver.tell("msg_1", url=url).status_code == 202
    assert receiver.tell("msg_2", url="https://ci.example.com/7").status_code == 202
    odd, plain = receiver.events()
    assert "url" not in odd.facts
    assert plain.facts["url"] == "https://ci.example.com/7"


def _no_database() -> AbstractContextManager[Database]:
    raise AssertionError("nobody needs it")


def _alert(**more: Any) -> dict[str, Any]:
    return {
        "status": "firing",
        "labels": {"alertname": "HighLoad", "instance": "web1:9100"},
        "annotations": {"summary": "load is 40"},
        "startsAt": "2026-11-21T02:00:00.123Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": "abc",
        **more,
    }


def _alerts(*alerts: dict[str, Any]) -> bytes:
    return json.dumps({"version": "4", "receiver": "keyturn", "alerts": alerts}).encode()


def test_alertmanager_webhook_records_an_alert_once_and_its_end(receiver: Receiver) -> None:
    bearer = {"authorization": f"Bearer {SECRET}"}
    firing = _alerts(_alert())
    assert receiver.post("alerts", firing, bearer).status_code == 202
    assert receiver.post("alerts", firing, bearer).json() == {"entries": []}
    ended = _alerts(_alert(status="resolved", endsAt="2026-11-21T02:10:00Z"))
    assert receiver.post("alerts", ended, bearer).status_code == 202
    titles = [(e.facts["title"], e.host, e.facts["detail"]) for e in receiver.events()]
    assert titles == [
        ("HighLoad firing", "web1", "load is 40"),
        ("HighLoad resolved", "web1", "load is 40"),
    ]
    assert receiver.post("alerts", firing, _sign(firing)).status_code == 401


def _deployment(*, ago: int = 0) -> bytes:
    at = datetime.fromtimestamp(NOW - ago, UTC).isoformat().replace("+00:00", "Z")
    payload = {
        "deployment_status": {
            "id": 2,
            "state": "success",
            "updated_at": at,
            "description": None,
            "target_url": "https://example.com/2",
            "creator": {"login": "ada"},
        },
        "deployment": {"id": 1, "ref": "v2", "environment": "production"},
        "repository": {"full_name": "acme/shop"},
    }
    return json.dumps(payload).encode()


def _sign_for_github(body: bytes) -> dict[str, str]:
    made = hmac.digest(SECRET.encode(), body, hashlib.sha256).hex()
    return {"x-hub-signature-256": f"sha256={made}", "x-github-event": "deployment_status"}


def test_github_webhook_records_a_deployment_once_and_in_time(receiver: Receiver) -> None:
    body = _deployment()
    assert receiver.post("github", body, _sign_for_github(body)).status_code == 202
    assert receiver.post("github", body, _sign_for_github(body)).json() == {"entries": []}
    old = _deployment(ago=3600)
    assert receiver.post("github", old, _sign_for_github(old)).status_code == 409
    assert receiver.post("github", body, _sign_for_github(old)).status_code == 401
    (entry,) = receiver.events()
    assert entry.facts["title"] == "acme/shop v2 to production: success"
    assert entry.facts["reported_by"] == "ada"
    ping = b'{"zen": "Keep it logically awesome."}'
    assert receiver.post("github", ping, _sign_for_github(ping)).status_code == 200


def test_webhook_endpoint_refuses_get(receiver: Receiver) -> None:
    assert receiver.client.get("/deploys").status_code == 405


# --- the file ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sources: {x: {}}", "set either secret_file or secret_env"),
        ("sources: {x: {secret: abc}}", "secret: is an unknown field"),
        ("sources: {x: {secret_file: nope}}", "No such file"),
        ("sources: {x: {secret_env: KEYTURN_TEST_NOPE}}", "KEYTURN_TEST_NOPE is not set"),
        ("sources: {x: {secret_file: short}}", "needs 24 or more"),
        ("sources: {x: {secret_file: odd}}", "is not base64"),
        ("sources: {x: {format: mine, secret_file: short}}", "format"),
        ("sources: [x]", "sources"),
        ("sources: {", "line 1"),
        ("subscriptions: {x: {url: 'http://a.example', secret_file: good}}", "https://"),
        ("subscriptions: {x: {url: 'http://127.0.0.1/x', secret_file: good}}", "private: true"),
        (
            "subscriptions: {x: {url: 'http://a.example', private: true, secret_file: good}}",
            "only for this machine",
        ),
        (
            "subscriptions: {x: {url: 'https://a.example', format: xml, secret_file: good}}",
            "cloudevents",
        ),
        (
            "subscriptions: {x: {url: 'https://a.example', format: grafana, secret_file: odd}}",
            "whsec_",
        ),
        (
            "subscriptions: {x: {url: 'https://a.example', format: grafana, secret_file: two}}",
            "a token of a service account of Grafana",
        ),
        ("subscriptions: {x: {url: 'file:///etc/passwd', secret_file: good}}", "an address"),
        ("subscriptions: {x: {url: 'https://u:p@a.example', secret_file: good}}", "an address"),
        ('subscriptions: {x: {url: "https://a.example/\\n", secret_file: good}}', "invisible"),
        ('subscriptions: {x: {url: "https://a.\\texample/", secret_file: good}}', "invisible"),
        ('subscriptions: {x: {url: "https://a.example/\\u202e", secret_file: good}}', "invisible"),
        ("subscriptions: {x: {url: 'https://a.example/ b', secret_file: good}}", "a space"),
    ],
)
def test_invalid_webhook_file_is_refused_with_field_and_fix(
    tmp_path: Path, text: str, message: str
) -> None:
    for name, secret in (
        ("short", "abc"),
        ("odd", "whsec_%%%"),
        ("good", SECRET),
        ("two", "two words, 24 or more letters"),
    ):
        (tmp_path / name).write_text(secret)
    file = tmp_path / "hooks.yaml"
    file.write_text(text)
    with pytest.raises(WebhookConfigError) as bad:
        load_webhook_config(file)
    assert message in str(bad.value)
    assert SECRET not in str(bad.value)


def test_webhooks_command_shows_the_setup_without_secrets(file: Path, tmp_path: Path) -> None:
    def place(file_found: Path | None) -> CommandEnvironment:
        settings = Settings(data=tmp_path, base_url="https://keyturn.test", hooks=file_found)
        return CommandEnvironment(lambda: settings, _no_database)

    output = CliRunner().invoke(command, obj=place(file)).output
    assert "POST https://keyturn.test/hooks/deploys" in output
    assert SECRET not in output
    assert "KEYTURN_HOOKS" in CliRunner().invoke(command, obj=place(None)).output
    shown = json.loads(CliRunner().invoke(command, ["--json"], obj=place(file)).output)
    assert shown["sources"]["alerts"] == "alertmanager"
    broken = CliRunner().invoke(command, obj=place(tmp_path / "nope.yaml"))
    assert broken.exit_code == 1
    assert "nope.yaml: No such file or directory. Check KEYTURN_HOOKS" in broken.output


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00"]
)
def test_webhook_event_with_an_extreme_time_is_shown_at_its_arrival(
    receiver: Receiver, at: str
) -> None:
    assert receiver.tell(at=at, hosts=["lb1"]).status_code == 202
    [entry] = receiver.events()
    with receiver.harness.database.reading() as tx:
        [event] = build_timeline(tx, tx.now, span=3_600_000_000).events
    assert event.at == entry.at
    assert schemas.to_datetime(event.at).year >= 2026


def test_time_before_year_1_cannot_be_converted() -> None:
    with pytest.raises(ValueError, match="year 0"):
        schemas.to_datetime(-62_135_596_800_000_001)


def test_webhook_configuration_in_the_log_hides_the_subscription_address(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    file = tmp_path / "hooks.yaml"

    def render(url: str) -> str:
        file.write_text(f"subscriptions: {{wiki: {{url: '{url}', secret_file: secret}}}}")
        return str(render_webhook_config(load_webhook_config(file))["subscriptions"]["wiki"])

    here = render("https://hooks.example.com/T00/canary-4717?token=canary-4718")
    assert here.startswith("https://hooks.example.com/…")
    assert "canary" not in here
    # That it leads elsewhere now is still seen.
    assert render("https://hooks.example.com/T00/another") != here
