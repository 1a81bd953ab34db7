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
        three.put_item(one)
    began = time.monotonic()
    assert list(three.take_batch(seconds=LONG)) == ["a", "b", "c"]
    assert three.remaining == 0
    assert time.monotonic() - began < LONG / 2


def test_of_what_comes_one_by_one_no_more_is_waited_for_than_said(three: BatchQueue[str]):
    three.put_item("a")
    assert list(three.take_batch(seconds=0.01)) == ["a"]
    assert three.remaining == 2
    three.put_item("b")
    three.put_item("c")
    assert list(three.take_batch(seconds=LONG)) == ["b", "c"]
    assert three.remaining == 0


def test_whoever_takes_is_woken_by_the_last_of_it_and_not_by_those_before(three: BatchQueue[str]):
    taken: list[str] = []
    taker = threading.Thread(
        target=lambda: taken.extend(three.take_batch(seconds=LONG)), daemon=True
    )
    taker.start()
    three.put_item("a")
    three.put_item("b")
    taker.join(0.2)
    # A queue would have handed out these by now.
    assert (taker.is_alive(), taken) == (True, [])
    three.put_item("c")
    taker.join(LONG)
    assert taken == ["a", "b", "c"]


def test_what_comes_while_something_is_taken_is_neither_lost_nor_taken_twice():
    harvest = BatchQueue[int](4000)

    def bring(first: int) -> None:
        for one in range(first, 4000, 4):
            harvest.put_item(one)

    threads = [threading.Thread(target=bring, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    taken: list[int] = []
    while harvest.remaining:
        taken += harvest.take_batch(seconds=0.0)
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(4000))
