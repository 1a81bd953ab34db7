"""The signature check in front of Bolt, and what stock Bolt does without it."""

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.db.database import Database
from bot.slack.dedup import DeliveryRegister
from bot.slack.http import MAX_BODY_BYTES, SignatureGuard
from bot.slack.payloads import Body, parse_body
from tests.bot.databases import create_sqlite_database
from tests.bot.slack import payloads
from tests.bot.slack.asgi import post
from tests.bot.slack.payloads import SECRET, Headers, signed

pytestmark = pytest.mark.anyio


@dataclass
class Inner:
    """What stands behind the guard: counts what reaches it."""

    reached: list[Body] = field(default_factory=list[Body])
    fails: bool = False

    async def __call__(self, body: Body) -> Response:
        self.reached.append(body)
        if self.fails:
            raise KeyError("a shape that nobody expects")
        return PlainTextResponse("taken")


@pytest.fixture
def store(tmp_path: Path) -> Iterable[Database]:
    database = create_sqlite_database(tmp_path / "keyturn.db")
    yield database
    database.close()


@pytest.fixture
def inner() -> Inner:
    return Inner()


@pytest.fixture
def guard(store: Database, inner: Inner) -> SignatureGuard:
    return SignatureGuard(inner, secret=SECRET, deliveries=DeliveryRegister(store))


@dataclass
class Stock:
    """Bolt as it comes, with one listener that counts."""

    app: ASGIApp
    runs: list[str]


@pytest.fixture
def stock() -> Stock:
    runs: list[str] = []

    async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
        return AuthorizeResult(enterprise_id=enterprise_id, team_id=team_id, bot_token="xoxb-1")

    async def on_command(ack: Any, body: dict[str, Any]) -> None:
        runs.append(body["text"])
        if body["text"] == "fail":
            raise RuntimeError("on purpose")
        await ack("done")

    bolt = AsyncApp(
        name="tests",
        signing_secret=SECRET,
        client=AsyncWebClient(base_url="http://127.0.0.1:9/"),
        authorize=authorize,
        process_before_response=True,
    )
    bolt.command("/keyturn")(on_command)
    handler = AsyncSlackRequestHandler(bolt)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await (await handler.handle(Request(scope, receive)))(scope, receive, send)

    return Stock(serve, runs)


BODY = payloads.slash("help")
TIMESTAMP, SIGNATURE = b"x-slack-request-timestamp", b"x-slack-signature"


def unsigned() -> dict[str, Headers]:
    """Return headers that are no signature of BODY, each wrong in one thing only."""
    good = signed(BODY)
    now, signature = dict(good)[TIMESTAMP], dict(good)[SIGNATURE]

    def but(name: bytes, *values: bytes) -> Headers:
        return [pair for pair in good if pair[0] != name] + [(name, value) for value in values]

    return {
        "no timestamp": but(TIMESTAMP),
        "an empty timestamp": but(TIMESTAMP, b""),
        "a timestamp of letters": but(TIMESTAMP, b"yesterday"),
        "a timestamp of other digits": but(TIMESTAMP, "١٢٣٤٥٦٧٨٩٠".encode()),
        "a signed timestamp": but(TIMESTAMP, b"-" + now),
        "a timestamp with space": but(TIMESTAMP, b" " + now),
        "a timestamp of 5000 digits": but(TIMESTAMP, b"9" * 5000),
        "a timestamp with a fraction": but(TIMESTAMP, now + b".0"),
        "two timestamps": but(TIMESTAMP, now, now),
        "no signature": but(SIGNATURE),
        "an empty signature": but(SIGNATURE, b""),
        "a signature beyond ASCII": but(SIGNATURE, "v0=é".encode()),
        "another version": but(SIGNATURE, b"v1=" + b"0" * 64),
        "a wrong signature": but(SIGNATURE, b"v0=" + b"0" * 64),
        "a short signature": but(SIGNATURE, signature[:-1]),
        "capital digits": but(SIGNATURE, b"v0=" + signature[3:].upper()),
        "two signatures": but(SIGNATURE, signature, signature),
        "another secret": signed(BODY, secret="guessed"),
        "another body": signed(BODY + b"&text=yes"),
        "another time": but(TIMESTAMP, b"%d" % (int(now) - 1)),
    }


async def test_signed_slack_request_reaches_the_app_unchanged(guard: SignatureGuard, inner: Inner):
    answer = await post(guard, [BODY[:10], BODY[10:]], signed(BODY))
    assert (answer.status, inner.reached) == (200, [parse_body(BODY.decode(), None)])


@pytest.mark.parametrize("what", unsigned())
async def test_slack_request_with_an_invalid_signature_gets_401(
    guard: SignatureGuard, inner: Inner, what: str
):
    answer = await post(guard, BODY, unsigned()[what])
    assert answer.status == 401
    assert inner.reached == []
    assert b"trigger" not in answer.body


@pytest.mark.parametrize("what", ["a timestamp of letters", "a signature beyond ASCII"])
async def test_stock_bolt_answers_a_malformed_signature_with_500(stock: Stock, what: str):
    assert (await post(stock.app, BODY, unsigned()[what])).status == 500


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    timestamp=st.binary(max_size=40) | st.none(),
    signature=st.binary(max_size=80) | st.from_regex(rb"\Av0=[0-9a-f]{64}\Z"),
    body=st.binary(max_size=200).filter(lambda body: b"ssl_check" not in body),
)
def test_random_slack_signature_is_refused(
    guard: SignatureGuard, inner: Inner, timestamp: bytes | None, signature: bytes, body: bytes
):
    now = b"%d" % time.time()
    headers = [(TIMESTAMP, now if timestamp is None else timestamp), (SIGNATURE, signature)]
    answer = asyncio.run(post(guard, body, headers))
    assert answer.status == 401
    assert inner.reached == []


MALFORMED = {
    "no UTF-8": b"text=\xff\xfe",
    "no UTF-8 when unquoted": b"text=%ff%fe",
    "broken JSON": b'{"type":',
    "a JSON list": b"payload=[]",
    "no JSON in the payload": b"payload=nothing",
    "NaN": b'{"a":NaN}',
    "half a character": b'{"a":"\\ud800"}',
    "a very deep list": b'{"a":' + b"[" * 100_000,
    "too many fields": b"a=1&" * 101,
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
async def test_signed_request_with_a_malformed_body_gets_400(
    guard: SignatureGuard, inner: Inner, raw: bytes
):
    answer = await post(guard, raw, signed(raw))
    assert answer.status == 400
    assert inner.reached == []


async def test_stock_bolt_raises_on_invalid_utf8(stock: Stock):
    raw = MALFORMED["no UTF-8"]
    with pytest.raises(UnicodeDecodeError):
        await post(stock.app, raw, signed(raw))


async def test_stock_bolt_raises_on_broken_json(stock: Stock):
    raw = MALFORMED["broken JSON"]
    with pytest.raises(json.JSONDecodeError):
        await post(stock.app, raw, signed(raw))


async def test_oversized_slack_request_gets_413_without_being_read_whole(
    guard: SignatureGuard, inner: Inner
):
    chunks = [b"x" * 65536] * 1000
    sent = iter(chunks)
    read = 0

    class Counted(list[bytes]):
        def pop(self, _index: object = -1) -> bytes:
            nonlocal read
            read += 1
            return next(sent)

    answer = await post(guard, Counted(chunks), signed(b""))
    assert answer.status == 413
    assert read <= MAX_BODY_BYTES // 65536 + 1
    assert inner.reached == []


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
async def test_slack_endpoint_accepts_only_post(guard: SignatureGuard, inner: Inner, method: str):
    assert (await post(guard, BODY, signed(BODY), method=method)).status == 405
    assert inner.reached == []


@pytest.mark.parametrize(("age", "status"), [(299, 200), (-299, 200), (302, 401), (-302, 401)])
async def test_slack_signature_is_valid_for_five_minutes(
    guard: SignatureGuard, age: int, status: int
):
    assert (await post(guard, BODY, signed(BODY, at=time.time() - age))).status == status


async def test_replayed_slack_request_takes_effect_once(guard: SignatureGuard, inner: Inner):
    good = signed(BODY)
    answers = [await post(guard, BODY, good) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert [answer.body for answer in answers] == [b"taken", b"", b""]
    assert len(inner.reached) == 1


async def test_replayed_slack_payload_without_an_id_takes_effect_once(
    guard: SignatureGuard, inner: Inner
):
    raw = payloads.interaction({"type": "view_closed", "user": {"id": "U0DORA"}, "view": {}})
    good = signed(raw)
    for _ in range(3):
        await post(guard, raw, good)
    assert len(inner.reached) == 1


async def test_concurrent_replays_of_a_slack_request_take_effect_once(
    guard: SignatureGuard, inner: Inner
):
    good = signed(BODY)
    await asyncio.gather(*(post(guard, BODY, good) for _ in range(20)))
    assert len(inner.reached) == 1


async def test_replay_on_another_replica_takes_no_effect(
    guard: SignatureGuard, store: Database, inner: Inner
):
    good = signed(BODY)
    await post(guard, BODY, good)
    other = Database(store.url)
    await post(
        SignatureGuard(inner, secret=SECRET, deliveries=DeliveryRegister(other)), BODY, good
    )
    other.close()
    assert len(inner.reached) == 1


async def test_stock_bolt_runs_a_replayed_request_again(stock: Stock):
    good = signed(BODY)
    for _ in range(3):
        await post(stock.app, BODY, good)
    assert stock.runs == ["help"] * 3


@pytest.mark.parametrize(
    "raw",
    [
        payloads.slash("help"),
        payloads.event("Ev0001"),
        payloads.interaction(payloads.click("approve", "1:a", "U0OLGA", channel="C", ts="1")),
    ],
    ids=["command", "event", "click"],
)
async def test_redelivery_with_a_new_signature_takes_effect_once(
    guard: SignatureGuard, inner: Inner, raw: bytes
):
    for retry in range(4):
        headers = [*signed(raw, at=time.time() - retry), (b"x-slack-retry-num", b"%d" % retry)]
        assert (await post(guard, raw, headers)).status == 200
    assert len(inner.reached) == 1


async def test_same_command_typed_twice_is_two_requests(guard: SignatureGuard, inner: Inner):
    for _ in range(2):
        raw = payloads.slash("toy show lb1")
        await post(guard, raw, signed(raw))
    assert len(inner.reached) == 2


async def test_same_button_clicked_twice_is_two_clicks(guard: SignatureGuard, inner: Inner):
    for _ in range(2):
        raw = payloads.interaction(payloads.click("deny", "1:a", "U0OLGA", channel="C", ts="1"))
        await post(guard, raw, signed(raw))
    assert len(inner.reached) == 2


async def test_ssl_check_request_is_answered_without_reaching_the_app(
    guard: SignatureGuard, inner: Inner
):
    answer = await post(guard, b"token=x&ssl_check=1", [])
    assert (answer.status, inner.reached) == (200, [])


async def test_ssl_check_parameter_does_not_bypass_the_signature(
    guard: SignatureGuard, inner: Inner
):
    answer = await post(guard, b"ssl_check=1&" + BODY, [])
    assert (answer.status, inner.reached) == (401, [])


async def test_payload_that_the_app_cannot_parse_gets_400(guard: SignatureGuard, inner: Inner):
    inner.fails = True
    answer = await post(guard, BODY, signed(BODY))
    assert (answer.status, answer.json) == (400, {"error": "cannot parse the request"})


async def test_slack_requests_are_refused_when_deliveries_cannot_be_recorded(
    guard: SignatureGuard, inner: Inner, store: Database
):
    with store.transaction() as tx:
        tx.sql.exec_driver_sql("DROP TABLE seen_request")
    answer = await post(guard, BODY, signed(BODY))
    assert "Nothing was done" in answer.text
    raw = payloads.event("Ev0002")
    assert (await post(guard, raw, signed(raw))).status == 503
    assert inner.reached == []


# --- Bolt's other habits ---

PAYLOAD_WORDS = payloads.slash("toy set lb1 payload on")


async def test_stock_bolt_loses_a_command_that_contains_the_word_payload(stock: Stock):
    assert (await post(stock.app, PAYLOAD_WORDS, signed(PAYLOAD_WORDS))).status == 404
    assert stock.runs == []


async def test_stock_bolt_answers_a_failing_listener_with_500(stock: Stock):
    raw = payloads.slash("fail")
    assert (await post(stock.app, raw, signed(raw))).status == 500


async def test_stock_bolt_answers_an_event_without_listener_with_404(stock: Stock):
    raw = payloads.event("Ev0003")
    assert (await post(stock.app, raw, signed(raw))).status == 404
