"""What lies below one SSH connection, and what its host may cost us.

paramiko reads and writes a `Stream` in the place of a socket, and cuts it into packets by
`Packets`: both are ways that it documents. A connection has a thread of its own, and that thread
shares one interpreter with all others. So a host that keeps it busy, by a flood of requests or of
new keys, is hung up on, and a message that would keep it busy by itself is not handed on.
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

# Bytes that a stranger may send before we know who it is.
_UNTRUSTED_BYTES = 256 * 1024
# RFC 4253, 6.1 wants 35,000 bytes to be taken; we let hosts put 32 KiB of data into one.
MAX_PACKET_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
# Data of no length is of no use. A message of it is a channel and a length (RFC 4254, 5.2).
_MAX_EMPTY, _EMPTY_DATA_BYTES = 1000, 8
# Seconds of processor time that a connection may take at once: for its login, or while nothing is
# asked of it; and besides, for each command. 64 MiB of output take a second or two.
SPARE_SECONDS, COMMAND_SECONDS = 2.0, 5.0
# What it regains of that in a second, and for each command under way.
_REGAINED_IDLE, _REGAINED_BY_COMMAND = 0.05, 0.25
# New keys after an hour or a gigabyte, says RFC 4253, 9. They come with a new connection, since
# paramiko may lose data when it asks for new keys itself, which it does at 512 MiB.
MAX_AGE_SECONDS, MAX_BYTES = 3600.0, 128 * 1024 * 1024


class HangUpError(EOFError):
    """We hung up on the host: it cost too much, or said what no host says."""


class Stream:
    """below: a socket, or a channel of the connection to a jump host.

    on_cut: told why, when we hang up on the host. on_close: called once, when it is closed.
    last_heard: when anything came from there, by the monotonic clock. first: what came first.
    trusted: whether the host was recognised and has let us in. cut: why we hung up, if we did.
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
        self._began = self._looked = self.last_heard = time.monotonic()
        self._spent, self._left = 0.0, SPARE_SECONDS
        self._active_count = 0
        self._lock = threading.Lock()
        self.first_bytes = b""
        self.is_trusted = False
        self.hang_up_reason = ""
        self.closed = False

    @property
    def is_expired(self) -> bool:
        """Whether its keys have served so long that a new connection is to follow it."""
        age = time.monotonic() - self._began
        return age >= MAX_AGE_SECONDS or self._received + self._sent >= MAX_BYTES

    def begin_work(self) -> None:
        """Grant the connection what a command may cost."""
        with self._lock:
            self._active_count += 1
            self._left += COMMAND_SECONDS

    def end_work(self) -> None:
        """Take that back."""
        with self._lock:
            self._active_count -= 1

    @property
    def active_count(self) -> int:
        """How many commands are, and connections to hosts that this one leads to."""
        return self._active_count

    def recv(self, size: int) -> bytes:
        """Return some of what has come. Called by the connection's own thread alone."""
        if size > MAX_PACKET_BYTES:
            self.hang_up("it announced a packet longer than any may be")
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
        # A jump host is told, and the connection to it may be ending just now.
        with suppress(EOFError, OSError, paramiko.SSHException):
            # Who waits for it in another thread is woken by this, and not by closing alone.
            self._below.shutdown(socket.SHUT_RDWR)
        with suppress(EOFError, OSError, paramiko.SSHException):
            self._below.close()
        self._on_close()

    def hang_up(self, why: str) -> None:
        """Cut the connection, tell who counts, and raise HangUpError."""
        if not self.hang_up_reason:
            self.hang_up_reason = why
            self._on_hang_up(why)
        self.close()
        raise HangUpError(why)

    @property
    def _closed(self) -> bool:  # paramiko asks its socket by this name
        return self.closed

    def _receive(self) -> None:
        self._charge_cpu_time()
        data = self._below.recv(_READ_BYTES)
        if not data:
            raise EOFError
        self.last_heard = time.monotonic()
        self._received += len(data)
        if not self.is_trusted:
            self.first_bytes = (self.first_bytes + data)[:200]
            if self._received > _UNTRUSTED_BYTES:
                self.hang_up("it said too much before it was known who it is")
        self._read += data

    def _charge_cpu_time(self) -> None:
        """Hang up once this thread has taken more than the host may cost us."""
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
            self.hang_up("it flooded us")


class HostPacketizer(Packetizer):
    """paramiko's packets, but for a few that a host must not send."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)  # pyright: ignore[reportArgumentType] - its stub knows sockets only
        self._stream = stream
        self._transport: paramiko.Transport | None = None
        self._host_key = b""
        self._empty = 0

    def pin_host_key(self, transport: paramiko.Transport) -> None:
        """From now on take new keys only from the host that was recognised."""
        self._host_key = transport.get_remote_server_key().asbytes()
        self._transport = transport

    def read_message(self) -> tuple[int, Message]:
        kind, message = super().read_message()
        if kind == MSG_CHANNEL_DATA and len(message.asbytes()) == _EMPTY_DATA_BYTES:
            # Each wakes the thread that waits for the command, whose time nobody counts.
            self._empty += 1
            if self._empty > _MAX_EMPTY:
                self._stream.hang_up("it flooded us")
        if kind in {MSG_EXT_INFO, MSG_USERAUTH_INFO_REQUEST} and not _is_complete(kind, message):
            self._stream.hang_up("it announced more than it said")
        # paramiko compares the host's key to nothing. Under the new keys nothing was sent yet.
        if kind == MSG_NEWKEYS and self._transport is not None:
            shown = self._transport.get_remote_server_key().asbytes()
            if shown != self._host_key:
                self._stream.hang_up("it showed another host key than before")
        return kind, message


def _is_complete(kind: int, message: Message) -> bool:
    """Tell whether a message holds as many parts as it says: paramiko loops over them unseen."""
    shortest = 8
    if kind == MSG_USERAUTH_INFO_REQUEST:
        for _ in range(3):
            message.get_string()
        shortest = 5
    count = message.get_int()
    is_whole = count * shortest <= len(message.get_remainder())
    message.rewind()
    return is_whole
