"""The batch queue: many threads put items, and one takes batches."""

import threading
import time

import pytest

from bot.execution.read_hosts import BatchQueue

LONG = 30.0


@pytest.fixture
def three() -> BatchQueue[str]:
    return BatchQueue[str](3)


def test_batch_queue_returns_a_complete_batch_at_once(three: BatchQueue[str]):
    for one in "abc":
        three.put_item(one)
    began = time.monotonic()
    assert list(three.take_batch(seconds=LONG)) == ["a", "b", "c"]
    assert three.remaining == 0
    assert time.monotonic() - began < LONG / 2


def test_batch_queue_returns_a_partial_batch_at_the_timeout(three: BatchQueue[str]):
    three.put_item("a")
    assert list(three.take_batch(seconds=0.01)) == ["a"]
    assert three.remaining == 2
    three.put_item("b")
    three.put_item("c")
    assert list(three.take_batch(seconds=LONG)) == ["b", "c"]
    assert three.remaining == 0


def test_batch_queue_wakes_its_reader_only_with_the_last_item(three: BatchQueue[str]):
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


def test_batch_queue_loses_and_repeats_no_item_under_concurrency():
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
