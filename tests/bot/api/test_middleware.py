"""Size, rate and format limits of API requests, and headers of every response."""

import logging
from dataclasses import replace

import pytest

from bot.api import middleware
from bot.auth.rate_limit import RateLimit
from bot.db.database import StoreUnavailable
from bot.service import KeyturnService
from bot.workflow import rate_limit
from tests.bot.api.conftest import ApiHarness, create_api_harness
from tests.bot.harness import Harness


def test_no_api_response_has_cors_headers(api_harness: ApiHarness):
    program = api_harness.program("olga")
    for origin in ("https://evil.example", "null", "http://keyturn.test"):
        for method in ("GET", "OPTIONS"):
            answer = program.request(
                method,
                "/runs",
                headers={"Origin": origin, "Access-Control-Request-Method": "POST"},
            )
            assert [n for n in answer.headers if n.startswith("access-control")] == []
            assert answer.status_code == (200 if method == "GET" else 405)


@pytest.mark.parametrize("path", ["/runs", "/nope", "/openapi.json"])
@pytest.mark.parametrize("person", ["", "olga"])
def test_every_api_response_has_security_headers(api_harness: ApiHarness, path: str, person: str):
    headers = api_harness.program(person).get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    assert "set-cookie" not in headers


def test_api_sends_the_hsts_header_over_https(harness: Harness):
    with create_api_harness(harness, base_url="https://keyturn.test").program() as program:
        assert "max-age" in program.get("/me").headers["strict-transport-security"]


def test_api_request_body_over_the_limit_gets_413(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    reason = {"request": "toy show lb1", "reason": "x" * middleware.MAX_BYTES}
    assert program.post("/runs", json=reason).status_code == 413

    def drops():
        for _ in range(300):
            yield b" " * 1024

    response = program.post("/runs", content=drops(), headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    assert "256 KiB" in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000, 400),
        (b'{"request": "toy show lb1"', 400),
        (b'{"request": "\\ud800"}', 422),
        (b"", 422),
        (b"null", 422),
        (b"\xff\xfe", 400),
    ],
)
def test_malformed_json_body_is_refused(api_harness: ApiHarness, body: bytes, status: int):
    program = api_harness.program("dora", "request")
    answer = program.post("/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_json_body_with_another_content_type_is_refused(api_harness: ApiHarness):
    answer = api_harness.program("dora", "request").post(
        "/runs", content=b'{"request": "toy show lb1"}', headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 422
    assert "requested" not in api_harness.harness.list_entry_kinds()


def test_slow_api_request_gets_408(api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(middleware, "MAX_SECONDS", 0)
    assert api_harness.program("dora").get("/me").status_code in {200, 408}


def test_api_rate_limit_per_token_gets_429_with_retry_after(harness: Harness):
    clock = [0.0]
    api_harness = create_api_harness(
        harness, rate_limit=RateLimit(burst=3, per_second=2, clock=lambda: clock[0])
    )
    with api_harness.program("dora") as dora, api_harness.program("olga") as olga:
        assert [dora.get("/me").status_code for _ in range(4)] == [200, 200, 200, 429]
        late = dora.get("/me")
        assert (late.status_code, late.headers["retry-after"]) == (429, "1")
        assert olga.get("/me").status_code == 200
        clock[0] = 0.5
        assert dora.get("/me").status_code == 200


def test_request_limit_per_person_gets_429_with_retry_after(harness: Harness):
    parts = replace(harness.context, rate_limits=rate_limit.RateLimits.from_person_limit(2))
    api_harness = create_api_harness(
        replace(harness, context=parts, service=KeyturnService(parts))
    )
    look = {"request": "toy show lb1"}
    with (
        api_harness.program("dora", "request") as dora,
        api_harness.program("olga", "request") as olga,
    ):
        assert [dora.post("/runs", json=look).status_code for _ in range(2)] == [202, 202]
        late = dora.post("/runs", json=look)
        assert (late.status_code, late.headers["retry-after"]) == (429, "60")
        assert "you made 2 requests" in late.json()["detail"].lower()
        assert olga.post("/runs", json=look).status_code == 202


def test_api_internal_error_has_no_details(api_harness: ApiHarness):
    @api_harness.api.get("/fault")
    def fault() -> None:
        raise RuntimeError("the secret recipe")

    answer = api_harness.program("olga").get("/fault")
    assert answer.status_code == 500
    assert answer.json()["title"] == "Internal error"
    assert "secret recipe" not in answer.text


def test_api_without_a_database_gets_503_and_logs_the_reason(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    from bot.api import runs

    def gone(*_args: object, **_named: object) -> None:
        raise StoreUnavailable("host db1 refuses password of keyturn")

    program = api_harness.program("olga")
    monkeypatch.setattr(runs, "search_runs", gone)
    with caplog.at_level(logging.CRITICAL):
        answer = program.get("/runs")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "db1" not in answer.text
    assert "db1" in caplog.text
    assert "GET /api: host db1" in caplog.text


def test_api_without_a_valid_policy_gets_503(api_harness: ApiHarness):
    program = api_harness.program("olga")
    (api_harness.policy / "policy.cedar").write_text("permit (")
    answer = program.get("/me")
    assert (answer.status_code, answer.json()["type"]) == (
        503,
        "urn:keyturn:problem:policy-unavailable",
    )
