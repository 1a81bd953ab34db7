"""The byte stream of one SSH connection, and the limit of processor time that it may use.

paramiko uses a `Stream` instead of a socket and a `HostPacketizer` for packets; it documents both.
Each connection has a thread, and all threads share one interpreter. So Keyturn closes the
connection of a host that keeps its thread busy, by a flood of requests or of new keys, and drops
a message that would keep it busy by itself.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import paramiko
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_EXT_INFO,
    MSG_NEWKEYS,
    MSG_USERAUTH_INFO_REQUEST,
)
from paramiko.message import Message
from paramiko.packet import Packetizer

# Bytes that a host may send before its login is complete.
_UNTRUSTED_BYTES = 256 * 1024
# RFC 4253, 6.1 requires 35,000 bytes; Keyturn allows hosts 32 KiB of data in one packet.
MAX_PACKET_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
# Empty data messages have no use: they are a channel and a length (RFC 4254, 5.2).
_MAX_EMPTY, _EMPTY_DATA_BYTES = 1000, 8
# Seconds of processor time that a connection may use: for its login or while idle, and in
# addition for each command. 64 MiB of output take a second or two.
SPARE_SECONDS, COMMAND_SECONDS = 2.0, 5.0
# How much of that it regains each second: idle, and for each running command.
_REGAINED_IDLE, _REGAINED_BY_COMMAND = 0.05, 0.25
# RFC 4253, 9 recommends new keys after an hour or a gigabyte. Keyturn opens a new connection
# instead, since paramiko can lose data when it renews keys, which it does at 512 MiB.
MAX_AGE_SECONDS, MAX_BYTES = 3600.0, 128 * 1024 * 1024


class HangUpError(EOFError):
    """Keyturn closed the connection because the host misbehaved."""


class Stream:
    """The byte stream below an SSH transport, used by paramiko instead of a socket.

    Args:
        below: a socket, or a channel of the connection to a jump host.
        on_hang_up: called with the reason when Keyturn closes the connection of a bad host.
        on_close: called once when the stream is closed.
    """

    def __init__(
        self,
        below: socket.socket | paramiko.Channel,
        *,
        on_hang_up: Callable[[str], None] = lambda _: None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._below = below
        self._on_hang_up, self._on_close = on_hang_up, on_close
        self._read = bytearray()
        self._received = self._sent = 0
        # By the monotonic clock; last_received: when data last arrived.
        self._began = self._looked = self.last_received = time.monotonic()
        self._spent, self._left = 0.0, SPARE_SECONDS
        self._active_count = 0
        self._lock = threading.Lock()
        # The first bytes that arrived, at most 200.
        self.first_bytes = b""
        # Whether the host key is verified and the login complete.
        self.is_trusted = False
        # Why Keyturn closed the connection; "" if it did not.
        self.hang_up_reason = ""
        self.closed = False

    @property
    def is_expired(self) -> bool:
        """Whether its keys are so old that a new connection must replace it."""
        age = time.monotonic() - self._began
        return age >= MAX_AGE_SECONDS or self._received + self._sent >= MAX_BYTES

    def begin_work(self) -> None:
        """Add the processor time of one command."""
        with self._lock:
            self._active_count += 1
            self._left += COMMAND_SECONDS

    def end_work(self) -> None:
        """Remove a command that was added by begin_work()."""
        with self._lock:
            self._active_count -= 1

    @property
    def active_count(self) -> int:
        """How many commands run on it, including tunnels to other hosts."""
        return self._active_count

    def recv(self, size: int) -> bytes:
        """Return data that has arrived. Only the connection's own thread calls it."""
        if size > MAX_PACKET_BYTES:
            self.hang_up("it announced a packet that is too long")
        if not self._read:
            self._receive()
        data = bytes(self._read[:size])
        del self._read[:size]
        return data

    def send(self, data: bytes) -> int:
        sent = self._below.send(data)
        self._sent += sent
        return sent

    def settimeout(self, seconds: float) -> None:
        self._below.settimeout(seconds)

    def close(self) -> None:
        with self._lock:
            was_closed, self.closed = self.closed, True
        if was_closed:
            return
        # Closing a tunnel sends a message, and the connection to the jump host may be ending.
        with suppress(EOFError, OSError, paramiko.SSHException):
            # This wakes a thread that waits for data; close() alone does not.
            self._below.shutdown(socket.SHUT_RDWR)
        with suppress(EOFError, OSError, paramiko.SSHException):
            self._below.close()
        self._on_close()

    def hang_up(self, why: str) -> None:
        """Close the connection, report the reason, and raise HangUpError."""
        if not self.hang_up_reason:
            self.hang_up_reason = why
            self._on_hang_up(why)
        self.close()
        raise HangUpError(why)

    @property
    def _closed(self) -> bool:  # paramiko reads this attribute of its socket
        return self.closed

    def _receive(self) -> None:
        self._charge_cpu_time()
        data = self._below.recv(_READ_BYTES)
        if not data:
            raise EOFError
        self.last_received = time.monotonic()
        self._received += len(data)
        if not self.is_trusted:
            self.first_bytes = (self.first_bytes + data)[:200]
            if self._received > _UNTRUSTED_BYTES:
                self.hang_up("it sent too much before its login was complete")
        self._read += data

    def _charge_cpu_time(self) -> None:
        """Hang up once this thread has used more processor time than the host may cost."""
        spent, now = time.thread_time(), time.monotonic()
        with self._lock:
            regained = (now - self._looked) * (
                _REGAINED_IDLE + _REGAINED_BY_COMMAND * self._active_count
            ) - (spent - self._spent)
            most = SPARE_SECONDS + COMMAND_SECONDS * self._active_count
            self._left = min(most, self._left + regained)
            self._spent, self._looked = spent, now
            is_too_much = self._left < 0
        if is_too_much:
            self.hang_up("it flooded Keyturn with messages")


class HostPacketizer(Packetizer):
    """paramiko's packetizer, which refuses a few packets that a host must not send."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)  # pyright: ignore[reportArgumentType] - its stub knows sockets only
        self._stream = stream
        self._transport: paramiko.Transport | None = None
        self._host_key = b""
        self._empty = 0

    def pin_host_key(self, transport: paramiko.Transport) -> None:
        """Accept new keys only with the verified host key from now on."""
        self._host_key = transport.get_remote_server_key().asbytes()
        self._transport = transport

    def read_message(self) -> tuple[int, Message]:
        kind, message = super().read_message()
        if kind == MSG_CHANNEL_DATA and len(message.asbytes()) == _EMPTY_DATA_BYTES:
            # Each wakes the thread that waits for the command, whose time is not counted.
            self._empty += 1
            if self._empty > _MAX_EMPTY:
                self._stream.hang_up("it flooded Keyturn with messages")
        if kind in {MSG_EXT_INFO, MSG_USERAUTH_INFO_REQUEST} and not _is_complete(kind, message):
            self._stream.hang_up("it announced more than it sent")
        # paramiko does not compare the host key on a key renewal. Nothing was sent with the new
        # keys yet.
        if kind == MSG_NEWKEYS and self._transport is not None:
            shown = self._transport.get_remote_server_key().asbytes()
            if shown != self._host_key:
                self._stream.hang_up("it showed a different host key than before")
        return kind, message


def _is_complete(kind: int, message: Message) -> bool:
    """Return whether a message holds as many parts as it announces: paramiko loops over them."""
    shortest = 8
    if kind == MSG_USERAUTH_INFO_REQUEST:
        for _ in range(3):
            message.get_string()
        shortest = 5
    count = message.get_int()
    is_complete = count * shortest <= len(message.get_remainder())
    message.rewind()
    return is_complete
