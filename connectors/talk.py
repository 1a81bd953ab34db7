"""The talk: one command's channel on a connection, from its opening to its close. No I/O.

paramiko's own Channel has a lock or two for each packet and wakes whoever waits by each. Here one
thread hears, which is whoever reads the connection, and one waits, which is whoever runs the
command; what each writes only the other reads. The protocol is RFC 4254, 5 and 6.
"""

import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

OPEN, OPENED, ADJUST, DATA, EXTENDED, EOF, CLOSE, REQUEST, SUCCESS, FAILURE = (
    *(90, 91),
    *range(93, 101),
)
# What is said on a channel that is open.
SPOKEN = range(ADJUST, FAILURE + 1)

# Bytes that a host may say before we take them, and that it may put into one packet.
_WINDOW = 2 * 1024 * 1024
_PACKET = 32 * 1024
# Of what was taken, the host is told when it comes to so much.
_TOLD = _WINDOW // 10
# Bytes that a host may have said before a patient reader takes them: a part of the window.
_MUCH = 32 * 1024
_ERR = 1
# Of a packet, the part that is not data.
_AROUND = 64


class Line(Protocol):
    """The connection that it is on."""

    def say(self, message: bytes) -> None: ...


class Talk:
    """line: what is to be run, told the host as soon as it has opened the channel; "" to be told
    by `tell` later. patient: who waits wants to know of the end, and of nothing before it but what
    is much. bell: called to wake them; must not wait. Without one, they `wait`.
    """

    def __init__(
        self, on: Line, *, line: str, patient: bool, bell: Callable[[], None] | None = None
    ) -> None:
        self._on, self._line, self._patient = on, line, patient
        self._theirs: int | None = None
        self._out, self._err = deque[bytes](), deque[bytes]()
        # Each is counted by one thread alone: what was heard and granted by whoever reads.
        self._heard = self._taken = self._granted = self._sent = self._to_tell = 0
        self._packet = _PACKET
        self._turn = threading.Lock()
        # Held but when somebody is to be woken: all that an Event is, in one call instead of ten.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._their_bell = bell
        self._closed_here = False
        # Our own number for it, once it was begun.
        self.number = -1
        # When the host may have been told what to run, by the monotonic clock; 0.0 if it was not.
        self.began = 0.0
        # Whether the host will not open a channel; has said all; has said how it ended; is done.
        self.refused = self.eof = self.status = self.closed = False

    # What whoever reads the connection calls.

    def opened(self, theirs: int, window: int, packet: int) -> None:
        """Note that the host has opened the channel, which is its number *theirs*."""
        self._granted, self._packet = window, packet
        with self._turn:
            self._theirs = theirs
            tell_now = bool(self._line) and not self._closed_here
            self.began = time.monotonic() if tell_now else 0.0
        if tell_now:
            self._ask_for(self._line)
        elif self._closed_here:
            self._say(CLOSE)
        else:
            self._ring()

    def hear(self, kind: int, rest: bytes) -> None:
        """Take a message. rest: what follows our own number of the channel in it."""
        if kind == DATA:
            self._out.append(rest[4:])
            self._heard += len(rest) - 4
        elif kind == EXTENDED:
            if int.from_bytes(rest[:4]) == _ERR:
                self._err.append(rest[8:])
                self._heard += len(rest) - 8
        elif kind == ADJUST:
            self._granted += int.from_bytes(rest[:4])
        elif kind == EOF:
            self.eof = True
        elif kind == REQUEST:
            self._hear_request(rest)
        elif kind in {CLOSE, FAILURE}:
            self.close()

    def _hear_request(self, rest: bytes) -> None:
        (size,) = struct.unpack_from(">I", rest)
        name, wants_answer = rest[4 : 4 + size], rest[4 + size : 5 + size]
        known = name in {b"exit-status", b"exit-signal"}
        if wants_answer != b"\0":
            self._say(SUCCESS if known else FAILURE)
        self.status = self.status or known

    def refuse(self) -> None:
        """Note that the host will not open the channel."""
        self.refused = self.closed = True
        self._ring()

    def _unlink(self) -> None:
        """Note that the connection has ended: what paramiko calls of each of its channels."""
        self._closed_here = self.closed = True
        self._ring()

    def wake(self) -> None:
        """Wake whoever waits, unless they would wait on. Called once all that came is taken."""
        if not self._patient or self.status or self.closed or self._heard - self._taken > _MUCH:
            self._ring()

    # What whoever runs the command calls.

    @property
    def told(self) -> bool:
        """Whether the host may have been told what to run."""
        return self.began > 0.0

    @property
    def is_open(self) -> bool:
        return self._theirs is not None

    def tell(self, line: str) -> None:
        """Have the host run it on the channel that is open, without waiting to hear that it does.

        A host that does not run it closes the channel, and one that does answers anyway.
        """
        with self._turn:
            self.began = 0.0 if self.closed else time.monotonic()
        if self.told:
            self._ask_for(line)

    def give_up(self) -> bool:
        """Have nothing told any more; False if it was told just now."""
        with self._turn:
            self._closed_here = not self.told
            return not self.told

    def look(self) -> None:
        """Look at all that came until now: from here on, what comes ends a wait."""
        self._bell.acquire(blocking=False)

    def wait(self, seconds: float) -> bool:
        """Wait for what is worth it, or as long as that; False if nothing was.

        Whoever is woken looks, and then waits anew.
        """
        return self._bell.acquire(timeout=max(seconds, 0.0))

    def hear_out(self) -> None:
        """Wake whoever waits by the host's saying how it ended. What it said before was taken."""
        self._patient = True
        self.look()

    def take(self) -> tuple[bytes, bytes]:
        """Return all that came on both streams since."""
        out, err = _all(self._out), _all(self._err)
        came = len(out) + len(err)
        self._taken += came
        self._to_tell += came
        if self._to_tell > _TOLD and not (self.eof or self.closed):
            self._say(ADJUST, struct.pack(">I", self._to_tell))
            self._to_tell = 0
        return out, err

    @property
    def room(self) -> int:
        """How many bytes the host would take now."""
        return 0 if self.closed else min(self._granted - self._sent, self._packet - _AROUND)

    def send(self, data: bytes) -> None:
        """Send what there is room for."""
        self._sent += len(data)
        self._say(DATA, struct.pack(">I", len(data)) + data)

    def end_input(self) -> None:
        if not self.closed:
            self._say(EOF)

    def close(self) -> None:
        """Close the channel, where that was not done. It goes without saying that we say no more.

        See RFC 4254, 5.3.
        """
        with self._turn:
            was_closed, self._closed_here = self._closed_here, True
            self.closed = True
        if not was_closed and self.is_open:
            self._say(CLOSE)

    def _ask_for(self, line: str) -> None:
        told = line.encode()
        wants_answer = True
        asked = struct.pack(f">I4s?I{len(told)}s", 4, b"exec", wants_answer, len(told), told)
        self._say(REQUEST, asked)

    def _ring(self) -> None:
        if self._their_bell is not None:
            self._their_bell()
            return
        with suppress(RuntimeError):  # it rings already
            self._bell.release()

    def _say(self, kind: int, more: bytes = b"") -> None:
        self._on.say(struct.pack(">BI", kind, self._theirs) + more)


def opening(number: int) -> bytes:
    """Return the message that asks for a channel, which is our *number*."""
    return struct.pack(">BI7sIII", OPEN, 7, b"session", number, _WINDOW, _PACKET)


def _all(said: deque[bytes]) -> bytes:
    return b"".join([said.popleft() for _ in range(len(said))])
