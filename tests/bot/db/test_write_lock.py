"""The write lock: one writer at a time, in order, urgent writers first."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, cast

from bot.db.write_lock import WriteLock, urgent_write

PATIENCE = 20.0


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class _Scene:
    """Threads that want the pen, and in which order they had it."""

    def __init__(self) -> None:
        self.lock, self.had = WriteLock(), list[str]()
        self._waiting = 0
        self._pool = ThreadPoolExecutor(20)

    def wants(self, name: str, *, hurried: bool = False, patience: float = PATIENCE) -> None:
        """Have one more wait, behind all who do."""
        self._waiting += 1
        self._pool.submit(self._hurry if hurried else self._want, name, patience)
        _wait_until(lambda: self._waiters() == self._waiting)

    def _waiters(self) -> int:
        pen: Any = self.lock  # nothing else tells who waits
        return len(pen._urgent) + len(pen._others)

    def _hurry(self, name: str, patience: float) -> None:
        with urgent_write():
            self._want(name, patience)

    def _want(self, name: str, patience: float) -> None:
        if self.lock.acquire(patience):
            self.had.append(name)
            self.lock.release()
        else:
            self.had.append(f"{name} gave up")

    def over(self) -> list[str]:
        self._pool.shutdown()
        return self.had


def test_write_lock_goes_to_an_urgent_writer_first():
    scene = _Scene()
    assert scene.lock.acquire(0)
    for n in range(9):
        scene.wants(f"other {n}")
    scene.wants("hurried", hurried=True)
    assert not scene.lock.acquire(0)
    scene.lock.release()
    assert scene.over()[0] == "hurried"
    assert len(scene.had) == 10


def test_write_lock_passes_on_when_an_urgent_writer_times_out():
    scene = _Scene()
    assert scene.lock.acquire(0)
    scene.wants("other")
    with urgent_write():
        assert not scene.lock.acquire(0.01)
    scene.lock.release()
    assert scene.over() == ["other"]


def test_write_lock_goes_to_writers_in_order_of_arrival():
    scene = _Scene()
    assert scene.lock.acquire(0)
    for n in range(12):
        scene.wants(str(n))
    scene.lock.release()
    assert scene.over() == [str(n) for n in range(12)]


def test_write_lock_goes_to_a_waiting_writer_before_the_last_one_again():
    """Nobody is kept waiting for ever by threads that are quicker to come back."""
    pen, has_it, may_give = WriteLock(), threading.Event(), threading.Event()

    def want() -> None:
        assert pen.acquire(PATIENCE)
        has_it.set()
        may_give.wait(PATIENCE)
        pen.release()

    for _ in range(20):
        has_it.clear()
        may_give.clear()
        assert pen.acquire(0)
        other = threading.Thread(target=want)
        other.start()
        _wait_until(lambda: bool(cast("Any", pen)._others))
        pen.release()
        assert not pen.acquire(0)
        assert has_it.wait(PATIENCE)
        may_give.set()
        other.join()


def test_write_lock_is_held_by_one_writer_at_a_time():
    pen, inside, most = WriteLock(), list[int](), 0

    def write(n: int) -> None:
        nonlocal most
        assert pen.acquire(PATIENCE)
        inside.append(n)
        time.sleep(0)
        most = max(most, len(inside))
        inside.remove(n)
        pen.release()

    def write_or_hurry(n: int) -> None:
        with urgent_write() if n % 7 == 0 else nullcontext():
            write(n)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write_or_hurry, range(400)))
    assert most == 1
