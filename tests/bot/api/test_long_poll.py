"""Long polls: a request with `wait` returns when its run ends or needs approval."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from bot.api import long_poll
from bot.api.deps import ApiParts
from bot.api.long_poll import MAX_WAITING_OF_PERSON, PendingResponse, Waiters
from bot.api.schemas import OutputModel
from bot.db import events as moves_store
from bot.db.database import StoreUnavailable
from bot.db.events import RunEvents
from runbooks import load_catalogue
from tests.bot.api.conftest import ApiHarness, create_api_harness
from tests.bot.harness import Harness
from tests.toy import SetSwitch

CHECK, CHANGE = {"request": "toy show lb1"}, {"request": "toy set lb1 lamp on"}
WAIT = {"wait": 30}


@pytest.fixture
def api_harness(harness: Harness) -> ApiHarness:
    return create_api_harness(harness, longest_wait=30)


def _until(claim: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not claim():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


def _return_succeeded(_run: int) -> long_poll.State:
    return long_poll.State.SUCCEEDED


def _publish_nothing(*_: object) -> None:
    """Tell nobody: another process would have moved the run."""


def _request_and_run(api_harness: ApiHarness, body: dict[str, Any], program: Any = None) -> Any:
    program = program or api_harness.program("dora", "request")
    with ThreadPoolExecutor(1) as pool:
        coming: Future[Any] = pool.submit(program.post, "/runs", json=body, params=WAIT)
        _until(lambda: bool(api_harness.harness.dispatcher.enqueued) or coming.done())
        api_harness.harness.run_queued_work()
        return coming.result(30)


def test_long_poll_of_a_check_returns_its_report(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    assert "toy show" in load_catalogue()
    # Nobody looks again: only who moves the run can wake who waits for it.
    monkeypatch.setattr(long_poll, "_POLL_SECONDS", 60)
    answer = _request_and_run(api_harness, CHECK)
    body = answer.json()
    assert (answer.status_code, body["run"]["state"]) == (202, "succeeded")
    assert body["report"]["summary"] == body["run"]["summary"]
    assert answer.headers["location"] == f"/api/v1/runs/{body['run']['id']}"


def test_long_poll_sees_a_run_ended_by_another_process(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(RunEvents, "publish", _publish_nothing)
    monkeypatch.setattr(long_poll, "_POLL_SECONDS", 0.02)
    assert _request_and_run(api_harness, CHECK).json()["run"]["ended"]


def test_long_poll_reads_at_growing_intervals_when_workers_are_separate(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    pauses = long_poll.iterate_pauses(single_process=False)
    assert [round(next(pauses), 2) for _ in range(6)] == [0.03, 0.06, 0.12, 0.24, 0.48, 0.5]
    alone = long_poll.iterate_pauses(single_process=True)
    assert [next(alone) for _ in range(2)] == [0.5, 0.5]
    monkeypatch.setattr(RunEvents, "publish", _publish_nothing)
    monkeypatch.setattr(long_poll, "_POLL_SECONDS", 60)
    monkeypatch.setattr(api_harness.harness.database, "embedded", False)
    waiters = Waiters(_parts(api_harness.harness))
    monkeypatch.setattr(waiters, "_read_state", _return_succeeded)
    response = asyncio.run(
        waiters.wait_for_response(PendingResponse(1, 30, lambda: _ThreadCount(threads=0)))
    )
    assert isinstance(response, _ThreadCount)


def test_long_poll_of_a_change_returns_when_it_needs_approval(api_harness: ApiHarness):
    body = _request_and_run(api_harness, CHANGE).json()
    assert (body["run"]["state"], body["report"]) == ("pending", None)


def test_long_poll_of_a_pending_run_returns_at_once(api_harness: ApiHarness):
    run = api_harness.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    response = api_harness.program("dora", "read").get(f"/runs/{run.id}", params=WAIT)
    assert response.json()["state"] == "pending"


def test_long_poll_of_an_existing_run_returns_when_it_ends(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    number = program.post("/runs", json=CHECK).json()["run"]["id"]
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(program.get, f"/runs/{number}", params=WAIT)
        api_harness.harness.run_queued_work()
        assert coming.result(30).json()["ended"]


def test_request_without_wait_returns_at_once(api_harness: ApiHarness):
    body = api_harness.program("dora", "request").post("/runs", json=CHECK).json()
    assert (body["run"]["state"], body["report"]) == ("planning", None)


def test_long_poll_returns_the_current_state_at_its_time_limit(harness: Harness):
    program = create_api_harness(harness, longest_wait=0.01).program("dora", "request")
    assert program.post("/runs", json=CHECK, params=WAIT).json()["run"]["state"] == "planning"


@pytest.mark.parametrize("wait", ["31", "-1", "nan", "inf", "long"])
def test_invalid_wait_parameter_is_refused(api_harness: ApiHarness, wait: str):
    answer = api_harness.program("dora", "request").post(
        "/runs", json=CHECK, params={"wait": wait}
    )
    assert answer.status_code == 422
    assert "requested" not in api_harness.harness.list_entry_kinds()


def test_response_is_stored_under_its_idempotency_key_before_the_wait(api_harness: ApiHarness):
    program, key = api_harness.program("dora", "request"), {"Idempotency-Key": "one"}

    def ask() -> Any:
        return program.post("/runs", json=CHECK, params=WAIT, headers=key)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask)
        _until(lambda: bool(api_harness.harness.dispatcher.enqueued))
        _until(lambda: ask().status_code == 202)
        assert not first.done()
        api_harness.harness.run_queued_work()
        assert first.result(30).json()["run"]["ended"]
    again = ask()
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["run"]["state"] == "planning"
    assert api_harness.harness.list_entry_kinds().count("requested") == 1


class _ThreadCount(OutputModel):
    threads: int


def _parts(harness: Harness) -> ApiParts:
    return ApiParts(harness.service, harness.database, harness.policies, "http://keyturn.test")


def test_long_polls_hold_no_threads(harness: Harness):
    program = create_api_harness(harness).program("dora", "request")
    number = program.post("/runs", json=CHECK).json()["run"]["id"]
    waiters = Waiters(_parts(harness))

    def threads() -> _ThreadCount:
        named = [one.name for one in threading.enumerate()]
        return _ThreadCount(threads=sum(name.startswith("AnyIO") for name in named))

    async def all_of_them() -> list[OutputModel | None]:
        pending = PendingResponse(number, 30, threads)
        waiting = [asyncio.ensure_future(waiters.wait_for_response(pending)) for _ in range(150)]
        await asyncio.to_thread(harness.run_queued_work)
        return await asyncio.gather(*waiting)

    before = threads().threads
    responses = asyncio.run(all_of_them())
    assert len(responses) == 150
    assert all(isinstance(one, _ThreadCount) and one.threads <= before + 4 for one in responses)


def test_long_poll_over_the_limit_of_waiters_returns_at_once(harness: Harness):
    number = (
        create_api_harness(harness)
        .program("dora", "request")
        .post("/runs", json=CHECK)
        .json()["run"]["id"]
    )
    pending = PendingResponse(number, 30, lambda: _ThreadCount(threads=0))
    assert asyncio.run(Waiters(_parts(harness), max_waiting=0).wait_for_response(pending)) is None


def test_one_person_cannot_take_the_places_of_all_who_wait(harness: Harness):
    program = create_api_harness(harness).program("dora", "request")
    number = program.post("/runs", json=CHECK).json()["run"]["id"]
    waiters = Waiters(_parts(harness))
    pending = PendingResponse(number, 30, lambda: _ThreadCount(threads=0))

    def wait(person: str) -> asyncio.Future[OutputModel | None]:
        return asyncio.ensure_future(waiters.wait_for_response(pending, person=person))

    async def all_of_them() -> tuple[list[OutputModel | None], OutputModel | None]:
        many, other = [wait("dora") for _ in range(MAX_WAITING_OF_PERSON + 5)], wait("adam")
        await asyncio.to_thread(harness.run_queued_work)
        return await asyncio.gather(*many), await other

    many, other = asyncio.run(all_of_them())
    assert many.count(None) == 5
    assert other is not None
    # The places are free again.
    assert asyncio.run(waiters.wait_for_response(pending, person="dora")) is not None


def _list_answering_threads(waiting: int, harness: Harness) -> list[str]:
    """Return which threads looked what to tell so many who waited for one run."""
    number = (
        create_api_harness(harness)
        .program("dora", "request")
        .post("/runs", json=CHECK)
        .json()["run"]["id"]
    )
    waiters, names = Waiters(_parts(harness)), list[str]()

    def count_threads() -> _ThreadCount:
        names.append(threading.current_thread().name)
        return _ThreadCount(threads=0)

    async def all_of_them() -> None:
        coming = [
            asyncio.ensure_future(
                waiters.wait_for_response(PendingResponse(number, 30, count_threads))
            )
            for _ in range(waiting)
        ]
        await asyncio.sleep(0)
        await asyncio.to_thread(harness.run_queued_work)
        await asyncio.gather(*coming)

    asyncio.run(all_of_them())
    return names


def test_worker_thread_answers_at_most_four_long_polls(harness: Harness):
    [name] = _list_answering_threads(1, harness)
    assert not name.startswith("AnyIO")
    names = _list_answering_threads(50, harness)
    assert len(names) == 50
    assert sum(not name.startswith("AnyIO") for name in names) == 4


def test_long_poll_reads_again_after_a_database_error_in_the_worker_thread(harness: Harness):
    number = (
        create_api_harness(harness)
        .program("dora", "request")
        .post("/runs", json=CHECK)
        .json()["run"]["id"]
    )
    waiters, troubles = Waiters(_parts(harness)), [StoreUnavailable("just now")]

    def count_threads() -> _ThreadCount:
        if troubles:
            raise troubles.pop()
        return _ThreadCount(threads=0)

    async def asked() -> OutputModel | None:
        coming = asyncio.ensure_future(
            waiters.wait_for_response(PendingResponse(number, 30, count_threads))
        )
        await asyncio.sleep(0)
        await asyncio.to_thread(harness.run_queued_work)
        return await coming

    assert asyncio.run(asked()) == _ThreadCount(threads=0)
    assert not troubles


def test_database_error_during_a_long_poll_keeps_the_first_response(harness: Harness):
    number = (
        create_api_harness(harness)
        .program("dora", "request")
        .post("/runs", json=CHECK)
        .json()["run"]["id"]
    )

    def gone() -> OutputModel:
        raise StoreUnavailable("gone")

    parts = ApiParts(
        harness.service, harness.database, harness.policies, "http://x", longest_wait=0.01
    )
    assert asyncio.run(Waiters(parts).wait_for_response(PendingResponse(number, 30, gone))) is None


def test_run_events_are_remembered_for_late_listeners():
    moves, heard = RunEvents(), list[str]()
    for run in range(moves_store.REMEMBERED + 1):
        moves.publish(run, long_poll.State.PENDING)
        moves.publish(run, long_poll.State.SUCCEEDED)
    for run in (0, 1, moves_store.REMEMBERED):
        with moves.listen(run, lambda state, run=run: heard.append(f"{run} {state}")):
            pass
    assert heard == ["1 succeeded", f"{moves_store.REMEMBERED} succeeded"]


def test_run_events_are_not_sent_to_a_closed_listener():
    moves, heard = RunEvents(), list[str]()
    with moves.listen(1, lambda state: heard.append(f"first {state}")):
        with moves.listen(1, lambda state: heard.append(f"second {state}")):
            moves.publish(1, long_poll.State.PENDING)
            moves.publish(2, long_poll.State.FAILED)
        moves.publish(1, long_poll.State.SUCCEEDED)
    moves.publish(1, long_poll.State.FAILED)
    assert heard == ["first pending", "second pending", "first succeeded"]
