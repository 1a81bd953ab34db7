"""The wire below a transport, once the reactor has it."""

import socket
from collections.abc import Iterator

import pytest

from connectors.wire import Wire


class Deaf:
    """Hears nothing of what the reactor says."""

    def readable(self) -> None: ...

    def writable(self) -> None: ...


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def _say(wire: Wire, size: int) -> None:
    for _ in range(0, size, 32 * 1024):
        wire.send(bytes(32 * 1024))


def test_what_is_kept_for_a_host_that_takes_in_nothing_has_an_end(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("connectors.wire._MOST_UNSENT", 1024 * 1024)
    wire = Wire(ends[0])
    wire.hand_over(Deaf())
    with pytest.raises(EOFError):
        _say(wire, 200 * 32 * 1024)
    wire.close()


def test_one_that_was_closed_just_before_is_handed_over_in_peace(
    ends: tuple[socket.socket, socket.socket],
):
    wire = Wire(ends[0])
    wire.close()
    wire.hand_over(Deaf())
    assert wire.handed_over
