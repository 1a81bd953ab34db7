"""Idempotency keys: a repeated request takes effect once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from bot.auth import row_mac, tokens
from bot.db import idempotency, runs, tables
from bot.db.database import StoreUnavailable
from bot.model.run import Run
from bot.workflow import requests
from tests.bot.api.conftest import ApiHarness

LAMP = {"request": "toy set lb1 lamp on"}


def _request(program: TestClient, key: str, body: dict[str, Any] = LAMP) -> Any:
    return program.post("/runs", json=body, headers={"Idempotency-Key": key})


def _count_requests(api_harness: ApiHarness) -> int:
    return api_harness.harness.list_entry_kinds().count("requested")


def test_repeated_idempotency_key_requests_once_and_replays_the_response(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    first, second = _request(program, "one"), _request(program, "one")
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["idempotent-replayed"] == "true"
    assert _count_requests(api_harness) == 1


def test_requests_without_idempotency_key_are_two_runs(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    for _ in range(2):
        program.post("/runs", json=LAMP)
    assert _count_requests(api_harness) == 2


def test_idempotency_key_reused_for_another_request_is_refused(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    _request(program, "one")
    for other in (LAMP | {"reason": "dark"}, {"request": "toy show lb1"}):
        answer = _request(program, "one", other)
        assert answer.status_code == 422
        assert answer.json()["type"] == "urn:keyturn:problem:idempotency-key-reused"
    assert _count_requests(api_harness) == 1


def test_idempotency_key_is_separate_for_each_person(api_harness: ApiHarness):
    for person in ("dora", "adam"):
        assert _request(api_harness.program(person, "request"), "one").status_code == 202
    assert _count_requests(api_harness) == 2


def test_idempotency_key_belongs_to_the_token(api_harness: ApiHarness):
    first = _request(api_harness.program("dora", "request"), "one")
    second = _request(api_harness.program("dora", "request"), "one")
    assert (first.status_code, second.status_code) == (202, 202)
    assert "idempotent-replayed" not in second.headers
    assert _count_requests(api_harness) == 2


@pytest.mark.parametrize("scope", ["read", "metrics"])
def test_token_without_the_scope_neither_replays_nor_takes_an_idempotency_key(
    api_harness: ApiHarness, scope: str
):
    weak, program = api_harness.program("dora", scope), api_harness.program("dora", "request")
    assert _request(weak, "one").status_code == 403
    assert _request(program, "one").status_code == 202
    # The same token, once its scopes are fewer.
    with api_harness.database.transaction() as tx:
        [token] = [one for one in tokens.list_tokens(tx, "dora") if "request" in one.scopes]
        row = select(tables.api_token).where(tables.api_token.c.id == token.id)
        values = row_mac.amend_with_mac(
            tx, tables.api_token, tx.sql.execute(row).one(), {"scopes": scope}
        )
        tx.sql.execute(
            update(tables.api_token).where(tables.api_token.c.id == token.id).values(values)
        )
    replayed = _request(program, "one")
    assert (replayed.status_code, "idempotent-replayed" in replayed.headers) == (403, False)


def test_concurrent_requests_with_one_idempotency_key_request_once(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")

    def ask(_n: int) -> int:
        return _request(program, "one").status_code

    with ThreadPoolExecutor(8) as several:
        responses = list(several.map(ask, range(16)))
    assert _count_requests(api_harness) == 1
    assert set(responses) <= {202, 409}


def test_error_response_is_stored_under_its_idempotency_key(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    assert [_request(program, "one", {"request": "toy"}).status_code for _ in range(2)] == [
        422,
        422,
    ]


def _interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no answer be kept, as where the process is killed just before."""

    def crash(*_args: object) -> None: ...

    monkeypatch.setattr(idempotency, "store_response", crash)
    monkeypatch.setattr(idempotency, "release_key", crash)


def _expire_lease(api_harness: ApiHarness) -> None:
    with api_harness.database.transaction() as tx:
        long_ago = (
            tables.stored_response.c.claimed_at - (idempotency.LEASE_SECONDS + 1) * 1_000_000
        )
        tx.sql.execute(update(tables.stored_response).values(claimed_at=long_ago))


def _raise_full_disk(*_args: object, **_named: object) -> None:
    raise StoreUnavailable("the disk is full")


def test_interrupted_request_redirects_to_its_run_after_the_lease(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    program = api_harness.program("dora", "request")
    _interrupt(monkeypatch)
    _request(program, "one")
    early = _request(program, "one")
    assert (early.status_code, _count_requests(api_harness)) == (409, 1)
    assert "repeat it in 60 s" in early.json()["detail"]
    _expire_lease(api_harness)
    again = program.post(
        "/runs", json=LAMP, headers={"Idempotency-Key": "one"}, follow_redirects=False
    )
    assert (again.status_code, again.headers["location"]) == (303, "/api/v1/runs/1")
    assert _count_requests(api_harness) == 1


def test_interrupted_request_without_a_run_is_executed_after_the_lease(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    program = api_harness.program("dora", "request")
    with monkeypatch.context() as away:
        away.setattr(runs, "add_run", _raise_full_disk)
        _interrupt(away)
        _request(program, "one")
    assert _request(program, "one").status_code == 409
    _expire_lease(api_harness)
    assert [_request(program, "one").status_code for _ in range(2)] == [202, 202]
    assert _count_requests(api_harness) == 1


def test_slow_request_whose_key_was_taken_over_does_nothing(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    program, real, slow = (
        api_harness.program("dora", "request"),
        requests.create_request,
        list[int](),
    )

    def ask(*args: Any, **named: Any) -> Run:
        if not slow:
            slow.append(0)
            _expire_lease(api_harness)
            slow[0] = _request(program, "one").status_code
        return real(*args, **named)

    monkeypatch.setattr(requests, "create_request", ask)
    assert (_request(program, "one").status_code, slow) == (503, [202])
    assert _count_requests(api_harness) == 1
    # What the second was answered is kept, and not taken away by the first.
    assert _request(program, "one").status_code == 202


def test_request_refused_by_a_full_database_can_be_repeated_with_its_key(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    program = api_harness.program("dora", "request")
    real = runs.add_run

    def full(*_args: object, **_named: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(runs, "add_run", full)
    refused = _request(program, "one")
    assert refused.status_code == 503
    assert "the disk" not in refused.text
    monkeypatch.setattr(runs, "add_run", real)
    assert _request(program, "one").status_code == 202


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a b"])
def test_invalid_idempotency_key_is_refused(api_harness: ApiHarness, key: str):
    assert _request(api_harness.program("dora", "request"), key).status_code == 422
    assert _count_requests(api_harness) == 0


def test_request_without_a_token_stores_no_idempotency_key(api_harness: ApiHarness):
    assert _request(api_harness.program(), "one").status_code == 401
    with api_harness.database.reading() as tx:
        count = tx.sql.exec_driver_sql("SELECT count(*) FROM stored_response").scalar_one()
    assert count == 0


def test_old_stored_responses_are_deleted(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    _request(program, "one")
    with api_harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE stored_response SET claimed_at = 1")
    _request(program, "two")
    with api_harness.database.reading() as tx:
        count = tx.sql.exec_driver_sql("SELECT count(*) FROM stored_response").scalar_one()
    assert count == 1
