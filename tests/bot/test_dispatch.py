"""The dispatcher of the embedded mode: few threads, and nobody asked for twice waits twice."""

import threading

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
