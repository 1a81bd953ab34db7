"""Idempotency keys: one request, one effect, however often it is made."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from bot.store import answers, runs
from bot.store.database import StoreUnavailable
from tests.bot.api.conftest import Desk

LAMP = {"words": "toy set lb1 lamp on"}


def _ask(program: TestClient, key: str, body: dict[str, Any] = LAMP) -> Any:
    return program.post("/runs", json=body, headers={"Idempotency-Key": key})


def _asked(desk: Desk) -> int:
    return desk.office.entries().count("asked")


def test_the_same_request_with_the_same_key_has_one_effect(desk: Desk):
    program = desk.program("dora", "ask")
    first, second = _ask(program, "one"), _ask(program, "one")
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["idempotent-replayed"] == "true"
    assert _asked(desk) == 1


def test_without_a_key_it_has_two(desk: Desk):
    program = desk.program("dora", "ask")
    for _ in range(2):
        program.post("/runs", json=LAMP)
    assert _asked(desk) == 2


def test_another_request_with_the_same_key_is_refused(desk: Desk):
    program = desk.program("dora", "ask")
    _ask(program, "one")
    for other in (LAMP | {"reason": "dark"}, {"words": "toy show lb1"}):
        answer = _ask(program, "one", other)
        assert answer.status_code == 422
        assert answer.json()["type"] == "urn:keyturn:problem:same-key-other-request"
    assert _asked(desk) == 1


def test_two_people_may_choose_the_same_key(desk: Desk):
    for person in ("dora", "adam"):
        assert _ask(desk.program(person, "ask"), "one").status_code == 202
    assert _asked(desk) == 2


def test_it_holds_for_another_token_of_the_same_person(desk: Desk):
    first = _ask(desk.program("dora", "ask"), "one")
    second = _ask(desk.program("dora", "ask"), "one")
    assert first.json() == second.json()


def test_many_at_once_have_one_effect(desk: Desk):
    program = desk.program("dora", "ask")

    def ask(_n: int) -> int:
        return _ask(program, "one").status_code

    with ThreadPoolExecutor(8) as several:
        found = list(several.map(ask, range(16)))
    assert _asked(desk) == 1
    assert set(found) <= {202, 409}


def test_a_no_is_kept_as_well(desk: Desk):
    program = desk.program("dora", "ask")
    assert [_ask(program, "one", {"words": "toy"}).status_code for _ in range(2)] == [422, 422]


def test_a_key_that_was_taken_by_what_never_ended_is_said_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    program = desk.program("dora", "ask")

    def crash(*_args: object) -> None: ...

    monkeypatch.setattr(answers, "keep", crash)
    _ask(program, "one")
    again = _ask(program, "one")
    assert (again.status_code, _asked(desk)) == (409, 1)
    assert "look at what there is" in again.json()["detail"]


def test_what_the_database_did_not_take_may_be_asked_anew(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    program = desk.program("dora", "ask")
    real = runs.add

    def full(*_args: object, **_named: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(runs, "add", full)
    refused = _ask(program, "one")
    assert refused.status_code == 503
    assert "the disk" not in refused.text
    monkeypatch.setattr(runs, "add", real)
    assert _ask(program, "one").status_code == 202


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a b"])
def test_a_key_that_is_none_is_refused(desk: Desk, key: str):
    assert _ask(desk.program("dora", "ask"), key).status_code == 422
    assert _asked(desk) == 0


def test_strangers_leave_no_keys(desk: Desk):
    assert _ask(desk.program(), "one").status_code == 401
    with desk.database.reading() as tx:
        count = tx.sql.exec_driver_sql("SELECT count(*) FROM answered").scalar_one()
    assert count == 0


def test_old_answers_are_forgotten(desk: Desk):
    program = desk.program("dora", "ask")
    _ask(program, "one")
    with desk.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE answered SET at = 1")
    _ask(program, "two")
    with desk.database.reading() as tx:
        count = tx.sql.exec_driver_sql("SELECT count(*) FROM answered").scalar_one()
    assert count == 1
