"""The dispatcher of the embedded mode: few threads, and nobody asked for twice waits twice."""

import threading

import pytest

from bot.dispatch import InProcess
from bot.store.database import Database


def test_a_run_that_waits_for_a_thread_waits_once(database: Database):
    begun, go, done = threading.Event(), threading.Event(), threading.Event()
    advanced: list[int] = []

    def advance(number: int) -> None:
        advanced.append(number)
        begun.set()
        assert go.wait(10)
        if number == 2:
            done.set()

    dispatch = InProcess(threads=1)
    dispatch.start(advance)
    with database.transaction() as tx:
        dispatch.enqueue(tx, 1, "main")
    assert begun.wait(10)
    with database.transaction() as tx:
        # The first may have looked before this came: it is taken up once more, and only once.
        for _ in range(3):
            dispatch.enqueue(tx, 1, "main")
        dispatch.enqueue(tx, 2, "main")
    go.set()
    assert done.wait(10)
    dispatch.stop()
    assert advanced == [1, 1, 2]


@pytest.mark.parametrize("lane", ["look", "enqueue"])
def test_t_a19_checks_that_hang_keep_no_change_waiting(database: Database, lane: str):
    """Its twin beside it: if checks had the same threads, the change would wait for them."""
    go, changed = threading.Event(), threading.Event()

    def advance(number: int) -> None:
        if number == 99:
            changed.set()
        else:
            assert go.wait(10)

    dispatch = InProcess(threads=2, looks=2)
    dispatch.start(advance)
    with database.transaction() as tx:
        for number in range(4):
            getattr(dispatch, lane)(tx, number, "main")
        dispatch.enqueue(tx, 99, "main")
    assert changed.wait(10 if lane == "look" else 0.2) is (lane == "look")
    go.set()
    dispatch.stop()


def test_what_does_not_end_is_not_waited_for_at_the_end(database: Database):
    begun, go = threading.Event(), threading.Event()

    def advance(_number: int) -> None:
        begun.set()
        assert go.wait(10)

    dispatch = InProcess()
    dispatch.start(advance)
    with database.transaction() as tx:
        dispatch.enqueue(tx, 1, "main")
    assert begun.wait(10)
    assert not dispatch.stop(0.05)
    go.set()
    assert dispatch.stop(10)
