"""The one thread that listens to all connections: whom it calls, and in which order."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from connectors.reactor import Reactor
from tests.connectors.test_ssh import eventually


class Line:
    """A connection that notes what is called of it; slow: what it waits for when it reads."""

    def __init__(self, name: str, notes: list[str], slow: Callable[[], object]) -> None:
        self.name, self._notes, self._slow = name, notes, slow
        self.ours, self.theirs = socket.socketpair()

    def readable(self) -> None:
        self.ours.recv(100)
        self._slow()
        self._notes.append(f"{self.name} is read")

    def writable(self) -> None:
        self._notes.append(f"{self.name} may write")

    def wake(self) -> None:
        self._notes.append(f"{self.name} wakes")

    def say(self) -> None:
        self.theirs.send(b"x")

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


class Three:
    """Three connections that one reactor listens to; the first is held up while it reads."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.held_up, self.go_on = threading.Event(), threading.Event()
        self.reactor = Reactor()
        self.first = Line("one", self.notes, self._hold_up)
        self.others = [Line(name, self.notes, lambda: None) for name in ("two", "three")]
        for line in (self.first, *self.others):
            self.reactor.add(line.ours.fileno(), line)

    def _hold_up(self) -> None:
        self.held_up.set()
        self.go_on.wait(30)

    def close(self) -> None:
        self.go_on.set()
        for line in (self.first, *self.others):
            self.reactor.forget(line.ours.fileno())
            line.close()


@pytest.fixture
def three() -> Iterator[Three]:
    three = Three()
    yield three
    three.close()


def test_whoever_waits_is_woken_once_all_who_spoke_have_been_listened_to(three: Three):
    three.first.say()
    assert three.held_up.wait(30)
    for line in three.others:
        line.say()
    three.go_on.set()
    assert eventually(lambda: len(three.notes) == 6)
    assert three.notes.index("one wakes") > three.notes.index("one is read")
    both = [note for note in three.notes if not note.startswith("one")]
    assert sorted(both[:2]) == ["three is read", "two is read"]
    assert sorted(both[2:]) == ["three wakes", "two wakes"]


def test_one_that_fails_is_listened_to_no_more_and_the_others_are(
    three: Three, monkeypatch: pytest.MonkeyPatch
):
    def fail() -> None:
        raise ValueError("unforeseen")

    monkeypatch.setattr(three.first, "readable", fail)
    three.first.say()
    assert eventually(lambda: three.notes == ["one wakes"])
    three.others[0].say()
    assert eventually(lambda: "two wakes" in three.notes)
    three.first.say()
    three.others[1].say()
    assert eventually(lambda: "three wakes" in three.notes)
    assert three.notes.count("one wakes") == 1


def test_where_its_thread_could_not_be_begun_the_next_connection_begins_it(
    monkeypatch: pytest.MonkeyPatch,
):
    """As where a container may have no more processes for a while."""
    begin, refused = threading.Thread.start, list[str]()

    def start(thread: threading.Thread) -> None:
        if thread.name == "reactor" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    notes: list[str] = []
    reactor, line = Reactor(), Line("one", notes, lambda: None)
    with pytest.raises(RuntimeError, match="can't start"):
        reactor.add(line.ours.fileno(), line)
    reactor.add(line.ours.fileno(), line)
    line.say()
    assert eventually(lambda: "one is read" in notes)
    reactor.forget(line.ours.fileno())
    line.close()
