"""The collector receives every entry in order, whatever happens to it or to Keyturn."""

import json
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from prometheus_client.core import Metric
from pydantic import ValidationError

from bot.audit import change_log, events, verification
from bot.audit.change_log import Entry
from bot.audit.event_type import UnknownEvent
from bot.db.database import Database, StoreUnavailable
from bot.features.collector import metrics, rows, sender, status
from bot.features.collector.sender import CollectorSender
from bot.model.check_result import CheckResult
from bot.queries import log_formats
from bot.settings import Settings
from tests.bot.bogus_entry import add_bogus_entry
from tests.bot.databases import on_sqlite

ENTRIES = 12


@dataclass
class Collector:
    """A server that keeps what it accepts. answer: returns its status for a batch."""

    url: str = ""
    answer: Callable[[list[dict[str, Any]]], int] = lambda _: 204
    accepted: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    requests: int = 0
    tokens: set[str | None] = field(default_factory=set[str | None])

    @property
    def numbers(self) -> list[int]:
        return [one["seq"] for one in self.accepted]

    def receive(self, body: bytes, token: str | None) -> int:
        self.requests += 1
        self.tokens.add(token)
        batch = [json.loads(line) for line in body.decode().splitlines()]
        returned = self.answer(batch)
        if returned < 300:
            self.accepted += batch
        return returned


@pytest.fixture
def collector() -> Generator[Collector]:
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(kept.receive(body, self.headers["Authorization"]))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_port}/"
    yield kept
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def log(database: Database) -> Database:
    with database.transaction() as tx:
        verification.open_log(tx)
        for n in range(2, ENTRIES + 1):
            change_log.append_entry(tx, UnknownEvent(kind="noted", facts={"n": n}), person="dora")
    return database


def _build_sender(database: Database, collector: Collector, token: str = "") -> CollectorSender:
    return CollectorSender(database, collector.url, token, _format_line)


def _format_line(entry: Entry) -> str:
    return f"{log_formats.format_entry_as_json(entry)}\n"


def _send_all(database: Database, collector: Collector) -> None:
    one = _build_sender(database, collector)
    while one.send_batch():
        pass


def _wait_no_longer(database: Database) -> None:
    with database.transaction() as tx:
        rows.release_cursor(tx, error="", seconds=0)


def _check(
    database: Database, *, settings: dict[str, str]
) -> tuple[list[CheckResult], list[Metric]]:
    with database.transaction() as tx:
        change_log.append_entry(tx, events.SettingsChanged(settings=settings, digest=""))
    with database.reading() as tx:
        checked = list(status.check_collector(tx, None))  # pyright: ignore[reportArgumentType] - it reads no policy
        return checked, list(metrics.collect_entries_behind(tx))


def test_collector_receives_every_entry_in_order_and_once(log: Database, collector: Collector):
    _send_all(log, collector)
    assert collector.numbers == list(range(1, ENTRIES + 1))
    assert collector.accepted[4]["facts"] == {"n": 5}
    assert "output" not in collector.accepted[4]
    with log.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="later"))
    _send_all(log, collector)
    assert collector.numbers == list(range(1, ENTRIES + 2))
    assert not _build_sender(log, collector).send_batch()


@on_sqlite
@pytest.mark.parametrize(
    ("token", "header"), [("abc", "Bearer abc"), ("Splunk abc", "Splunk abc"), ("", None)]
)
def test_token_is_sent_with_its_scheme(
    log: Database, collector: Collector, token: str, header: str | None
):
    assert _build_sender(log, collector, token).send_batch()
    assert collector.tokens == {header}


def test_a_process_that_dies_after_sending_leaves_no_gap(
    log: Database, collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sender, "_MAX_BYTES", 600)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "advance_cursor", lambda *_, **__: 1 / 0)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        with pytest.raises(ZeroDivisionError):
            _build_sender(log, collector).send_batch()
    twice = collector.numbers
    # Until its claim ends, no other process sends.
    assert not _build_sender(log, collector).send_batch()
    assert collector.numbers == twice
    _wait_no_longer(log)
    _send_all(log, collector)
    assert collector.numbers == [*twice, *range(1, ENTRIES + 1)]


def test_collector_that_is_away_is_tried_later_and_shown(log: Database, collector: Collector):
    collector.answer = lambda _: 503
    one = _build_sender(log, collector)
    assert not one.send_batch()
    assert not one.send_batch()
    assert not _build_sender(log, collector).send_batch()
    assert collector.requests == 1
    [result], [metric] = _check(log, settings={"collector": collector.url})
    assert (result.level, result.message) == (
        "error",
        f"lacks {ENTRIES + 1} entries of the change log: entry 1: it returned status 503. "
        "They are sent again until it accepts them",
    )
    assert metric.samples[0].value == ENTRIES + 1
    collector.answer = lambda _: 200
    _wait_no_longer(log)
    _send_all(log, collector)
    [result], [metric] = _check(log, settings={"collector": f"{collector.url}x"})
    assert result.level == "ok"
    assert metric.samples[0].value == 1


@on_sqlite
def test_collector_that_is_not_configured_is_not_checked(log: Database):
    assert _check(log, settings={"collector": ""}) == ([], [])


@on_sqlite
def test_refused_batches_are_sent_in_smaller_ones(log: Database, collector: Collector):
    collector.answer = lambda batch: 413 if len(batch) > 4 else 200
    _send_all(log, collector)
    assert collector.numbers == list(range(1, ENTRIES + 1))


@on_sqlite
def test_refused_entry_is_sent_without_its_facts(log: Database, collector: Collector):
    collector.answer = lambda batch: (
        400 if any(one["facts"].get("n") == 7 for one in batch) else 200
    )
    _send_all(log, collector)
    assert collector.numbers == list(range(1, ENTRIES + 1))
    assert set(collector.accepted[6]["facts"]) == {"omitted_bytes", "omitted_sha256"}
    assert collector.accepted[7]["facts"] == {"n": 8}


@on_sqlite
def test_entry_that_is_always_refused_is_never_left_out(log: Database, collector: Collector):
    collector.answer = lambda batch: 422 if any(one["seq"] == 7 for one in batch) else 200
    _send_all(log, collector)
    assert collector.numbers == list(range(1, 7))
    [result], _ = _check(log, settings={"collector": collector.url})
    assert "entry 7: it returned status 422" in result.message


def test_inserted_row_is_not_sent(log: Database, collector: Collector):
    add_bogus_entry(log)
    with pytest.raises(StoreUnavailable):
        _build_sender(log, collector).send_batch()
    assert collector.requests == 0


@on_sqlite
def test_long_entries_are_sent_in_several_requests(
    log: Database, collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sender, "_MAX_BYTES", 500)
    _send_all(log, collector)
    assert collector.numbers == list(range(1, ENTRIES + 1))
    assert collector.requests > 3


@pytest.mark.parametrize("given", [{"collector": "siem:8088"}, {"collector_token": "abc"}])
def test_wrong_settings_are_refused(given: dict[str, str]):
    with pytest.raises(ValidationError, match="KEYTURN_COLLECTOR"):
        Settings(**given)  # pyright: ignore[reportArgumentType] - as variables


def test_token_is_a_secret_without_its_scheme():
    settings = Settings(collector="https://siem/", collector_token="Splunk abc-def")  # pyright: ignore[reportArgumentType] - as variables
    assert {"Splunk abc-def", "abc-def"} <= set(settings.secrets)
    assert "Splunk" not in settings.secrets
    assert "abc" not in str(settings.shown)
