"""The watch over connections goes on, whatever befalls one of them."""

import threading
import time

import pytest

from connectors.watch import Watch


class _Line:
    """A connection that says nothing, until it is cut."""

    last_heard = 0.0

    def __init__(self) -> None:
        self.cut = threading.Event()

    def ask_for_a_sign(self) -> None:
        return

    def close(self) -> None:
        self.cut.set()


def _watched(*, seconds: float) -> _Line:
    line = _Line()
    Watch(line, seconds=seconds, silence=60).begin()
    return line


def test_where_no_thread_can_be_begun_a_connection_is_cut_later_and_the_others_are_watched(
    monkeypatch: pytest.MonkeyPatch,
):
    """As where a container may have no more processes."""
    begin, refused = threading.Thread.start, threading.Event()

    def start(thread: threading.Thread) -> None:
        if thread.name == "cut" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    began = time.monotonic()
    first = _watched(seconds=0.05)
    assert refused.wait(10)
    assert not first.cut.is_set()
    second = _watched(seconds=0.05)
    assert second.cut.wait(10)
    assert first.cut.wait(10)
    assert time.monotonic() - began < 10
