"""What many threads bring and one takes."""

import threading
import time

import pytest

from bot.execution.batches import BatchQueue

LONG = 30.0


@pytest.fixture
def three() -> BatchQueue[str]:
    return BatchQueue[str](3)


def test_what_is_all_there_is_taken_at_once(three: BatchQueue[str]):
    for one in "abc":
        three.bring(one)
    began = time.monotonic()
    assert list(three.take(within=LONG)) == ["a", "b", "c"]
    assert three.left == 0
    assert time.monotonic() - began < LONG / 2


def test_of_what_comes_one_by_one_no_more_is_waited_for_than_said(three: BatchQueue[str]):
    three.bring("a")
    assert list(three.take(within=0.01)) == ["a"]
    assert three.left == 2
    three.bring("b")
    three.bring("c")
    assert list(three.take(within=LONG)) == ["b", "c"]
    assert three.left == 0


def test_whoever_takes_is_woken_by_the_last_of_it_and_not_by_those_before(three: BatchQueue[str]):
    taken: list[str] = []
    taker = threading.Thread(target=lambda: taken.extend(three.take(within=LONG)), daemon=True)
    taker.start()
    three.bring("a")
    three.bring("b")
    taker.join(0.2)
    # A queue would have handed out these by now.
    assert (taker.is_alive(), taken) == (True, [])
    three.bring("c")
    taker.join(LONG)
    assert taken == ["a", "b", "c"]


def test_what_comes_while_something_is_taken_is_neither_lost_nor_taken_twice():
    harvest = BatchQueue[int](4000)

    def bring(first: int) -> None:
        for one in range(first, 4000, 4):
            harvest.bring(one)

    threads = [threading.Thread(target=bring, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    taken: list[int] = []
    while harvest.left:
        taken += harvest.take(within=0.0)
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(4000))
