"""The wire: the stream below an SSH transport, read by its thread and then by the reactor.

It knows how it began, and bounds what a stranger may send. Once the host is trusted and the
reactor has it, reading takes what is there and writing keeps what there is no room for: neither
waits. What is kept is bounded by the windows that the host has opened, and a host that has us
answer without end, and takes in nothing, is hung up on.
"""

import socket
import threading
import time
from contextlib import suppress

import paramiko

from connectors.reactor import REACTOR, Ear

_STRANGERS_BYTES = 256 * 1024
_AT_ONCE = 256 * 1024
_PACKET = 32 * 1024
# More than the windows of all commands that run on one host at once.
_MOST_UNSENT = 32 * 1024 * 1024


class Wire:
    """stream: a socket, or a channel of the connection to a jump host.

    last_heard: when anything came from there, by the monotonic clock.
    """

    def __init__(self, stream: socket.socket | paramiko.Channel) -> None:
        self._stream = stream
        self._heard = 0
        self.first = b""
        self.last_heard = time.monotonic()
        self.trusted = False
        self.handed_over = False
        self.read = bytearray()
        self._unsent = bytearray()
        self._lock = threading.Lock()
        self._closed_here = False

    @property
    def can_be_handed_over(self) -> bool:
        return isinstance(self._stream, socket.socket)

    def hand_over(self, ear: Ear) -> None:
        """Let the reactor read from now on. Called by the thread that has read until now."""
        with self._lock:
            self.handed_over = True
            if self._closed_here:
                return
            self._stream.settimeout(0.0)
            number = self._stream.fileno()
            REACTOR.add(number, ear)
            if self.read:
                # For that nobody would be called. There is room now, and it is looked at then.
                REACTOR.want_room(number, wanted=True)

    def fill(self) -> bool:
        """Take in what has come; False once that is all there will ever be."""
        try:
            data = self._stream.recv(_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return True
        self.last_heard = time.monotonic()
        self.read += data
        return bool(data)

    def drain(self) -> bool:
        """Send what there was no room for, as far as there is now; it can always go on."""
        with self._lock:
            sent = self._sent(self._unsent)
            del self._unsent[:sent]
            if not self._unsent and not self._closed_here:
                REACTOR.want_room(self._stream.fileno(), wanted=False)
        return True

    def recv(self, size: int) -> bytes:
        if not self.read and not self.handed_over:
            self._hear()
        return self._taken(size)

    def send(self, data: bytes) -> int:
        if not self.handed_over:
            return self._stream.send(data)
        with self._lock:
            if len(self._unsent) > _MOST_UNSENT:
                raise EOFError
            sent = 0 if self._unsent else self._sent(data)
            if sent < len(data):
                if not self._unsent:
                    REACTOR.want_room(self._stream.fileno(), wanted=True)
                self._unsent += data[sent:]
        return len(data)

    def settimeout(self, seconds: float) -> None:
        self._stream.settimeout(seconds)

    def close(self) -> None:
        with self._lock:
            if self.handed_over and not self._closed_here:
                REACTOR.forget(self._stream.fileno())
            self._closed_here = True
        # A jump host is told, and the connection to it may be ending just now.
        with suppress(EOFError, OSError, paramiko.SSHException):
            self._stream.close()

    @property
    def _closed(self) -> bool:  # paramiko asks its socket by this name
        return bool(getattr(self._stream, "_closed", False))

    def _hear(self) -> None:
        """Wait for what comes. A packet's parts, and what comes with it, are read at once."""
        data = self._stream.recv(_PACKET)
        self.last_heard = time.monotonic()
        if not self.trusted:
            self.first = (self.first + data)[:200]
            self._heard += len(data)
            if self._heard > _STRANGERS_BYTES:
                raise EOFError
        self.read += data

    def _taken(self, size: int) -> bytes:
        """Return what was read already. Of the reactor nobody asks before a packet is whole."""
        if not self.read:
            raise EOFError
        data = bytes(self.read[:size])
        del self.read[:size]
        return data

    def _sent(self, data: bytes | bytearray) -> int:
        try:
            return self._stream.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
