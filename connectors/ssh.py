"""One SSH connection to one host, on which commands run: each by the thread that waits for it."""

import contextlib
import logging
import select
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import paramiko

from connectors import key_file
from connectors.command import NO_HOOKS, Answer, RunHooks, Shell
from connectors.errors import (
    CommandTimeoutError,
    HostError,
    OutputLimitError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.inventory import Host
from connectors.ssh_stream import Stream
from connectors.ssh_transport import (
    ConnectionLostError,
    HostBusyError,
    SshLimits,
    format_address,
    format_hang_up,
    make_stream,
    open_tcp_connection,
    open_transport,
)
from connectors.wrapper import WrappedCommand

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
# The host counts a session until its shell is gone, so the next one would be one too many.
_STATUS_SECONDS = 1.0
_READ_BYTES = 1024 * 1024
# While the host takes in no more, whoever says something looks so often whether it is over.
_SEND_SECONDS = 0.2


def connect(
    host: Host, keys: Path, limits: SshLimits | None = None, *, via: "SshSession | None" = None
) -> "SshSession":
    """Connect to *host* and log in.

    keys: the directory that key files are relative to. via: the jump host's connection.
    """
    limits = limits or SshLimits()
    key = key_file.load_key(keys / host.key)
    below = via.open_tunnel(host) if via else open_tcp_connection(host, limits)
    return SshSession(host, *open_transport(host, key, limits, below), limits, via=via)


class SshSession:
    """A connection that is logged in. Any number of threads may run commands on it at once."""

    def __init__(
        self,
        host: Host,
        transport: paramiko.Transport,
        stream: Stream,
        limits: SshLimits,
        *,
        via: "SshSession | None",
    ) -> None:
        self.via = via
        self._host = host
        self._transport = transport
        self._stream = stream
        self._limits = limits
        # Whether nothing new is begun on it: it ends with the last that is under way.
        self._is_retired = False
        self._keepalive_thread: threading.Thread | None = None

    @property
    def is_usable(self) -> bool:
        """Whether commands may be begun on it."""
        return self.is_connected and not self._is_retired and not self.is_expired

    @property
    def is_connected(self) -> bool:
        """Whether something may be under way on it, though it takes nothing new."""
        return self._transport.is_active()

    @property
    def is_expired(self) -> bool:
        """Whether it, or what carries it, is to be followed by a new connection with new keys."""
        return self._stream.is_expired or (self.via is not None and self.via.is_expired)

    @property
    def transport(self) -> paramiko.Transport:
        """The paramiko transport, to look at and not to use."""
        return self._transport

    def close(self) -> None:
        self._transport.close()
        self._stream.close()

    def retire(self) -> None:
        """End with the last that is under way: one who gets no further cuts nobody else off."""
        self._is_retired = True
        self._close_if_retired()

    def send_keepalive(self) -> None:
        """Have the host answer, if only that it does not know what this is; wait for nothing."""
        if self._keepalive_thread is None or not self._keepalive_thread.is_alive():
            self._keepalive_thread = threading.Thread(
                target=self._wait_for_keepalive, name="sign", daemon=True
            )
            self._keepalive_thread.start()

    def open_tunnel(self, host: Host) -> Stream:
        """Open a stream from here to another host's SSH port.

        Our host says nothing of one that does not answer it, as long as it waits itself. So it is
        asked for a sign besides: what gives one carries others, who go on.
        """
        began = time.monotonic()
        self.send_keepalive()
        self._stream.begin_work()
        try:
            channel = self._transport.open_channel(
                "direct-tcpip",
                (host.address, host.port),
                ("127.0.0.1", 0),
                timeout=self._limits.connect,
            )
        except Exception as trouble:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            self._end_work()
            self._raise_tunnel_error(host, trouble, began)
        return make_stream(channel, host, self._limits, on_close=self._end_work)

    def run(self, shell: Shell, hooks: RunHooks = NO_HOOKS) -> Answer:
        """Run a resolved command and return its answer; trouble says whether it was started."""
        self._stream.begin_work()
        try:
            with self._watch(shell) as watch:
                return self._run_watched(shell, hooks, watch)
        finally:
            self._end_work()

    def _run_watched(self, shell: Shell, hooks: RunHooks, watch: "_Watchdog") -> Answer:
        channel = self._open_channel()
        watch.channel = channel
        told = _RunningCommand(self._host, self._limits, shell, hooks, channel)
        try:
            hooks.before_send()
            if channel.closed or not self._transport.is_active():
                raise self._make_lost_error()
            told.start()
            return told.read_answer()
        except Exception as trouble:
            if isinstance(trouble, HostError) and not isinstance(trouble, UnknownOutcomeError):
                raise
            # paramiko hands on whatever its thread died of.
            if not told.started_at:
                raise self._make_lost_error() from None
            if watch.is_silent:
                raise self._make_silence_error() from None
            if isinstance(trouble, UnknownOutcomeError):
                raise
            raise self._make_hang_up_error() from None
        finally:
            told.close()

    def _open_channel(self) -> paramiko.Channel:
        began = time.monotonic()
        try:
            return self._transport.open_session(timeout=self._limits.channel)
        except Exception as error:  # paramiko raises whatever ended its thread
            if not self._transport.is_active():
                raise self._make_lost_error() from error
            if time.monotonic() - began < self._limits.channel:
                raise HostBusyError(
                    f"{format_address(self._host)} refuses one more session on our connection: "
                    "raise "
                    "MaxSessions in its sshd_config, or let commands through one after another"
                ) from None
            waited = f": it opened no channel within {self._limits.channel:g} s"
            raise self._make_lost_error(waited) from error

    def _raise_tunnel_error(self, to: Host, trouble: Exception, began: float) -> NoReturn:
        name = self._host.name
        if isinstance(trouble, paramiko.ChannelException):
            raise UnreachableError(
                f"the jump host {name} does not get through to {format_address(to)}: "
                f"{trouble.text or 'no reason given'}. "
                "Is it up, and does AllowTcpForwarding let us?"
            ) from None
        if self._transport.is_active() and self._stream.last_heard > began:
            raise UnreachableError(
                f"the jump host {name} does not get through to {format_address(to)} within "
                f"{self._limits.connect:g} s: is it up, and does a firewall let the jump host "
                "through?"
            ) from None
        raise self._make_lost_error() from None

    def _end_work(self) -> None:
        self._stream.end_work()
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self._is_retired and not self._stream.active_count:
            self.close()

    def _wait_for_keepalive(self) -> None:
        # A connection that has ended meanwhile is told by whoever waits on it.
        with contextlib.suppress(Exception):
            self._transport.global_request("keepalive@openssh.com", wait=True)

    @contextlib.contextmanager
    def _watch(self, shell: Shell) -> "Generator[_Watchdog]":
        # paramiko waits without end for replies, and for room to send. Whatever wedges, the
        # connection is closed when even a host that says nothing would have been given up.
        limits = self._limits
        seconds = limits.channel + shell.deadline + limits.grace + 1
        watch = _Watchdog(self, self._stream, seconds=seconds, silence=limits.unacknowledged)
        _WATCHDOGS.add(watch)
        try:
            yield watch
        finally:
            _WATCHDOGS.remove(watch)

    def _make_lost_error(self, cause: str = "") -> UnreachableError:
        # Others may run on it, and wait longer for a sign than one does for a channel.
        self.retire()
        if self._stream.hang_up_reason:
            return UnreachableError(f"{format_hang_up(self._host, self._stream)} Nothing was sent")
        return ConnectionLostError(
            f"the connection to {format_address(self._host)} was lost before anything was sent"
            f"{cause}"
        )

    def _make_hang_up_error(self) -> UnknownOutcomeError:
        unknown = "it may or may not have run, and may still be running. Look at the host"
        if self._stream.hang_up_reason:
            return UnknownOutcomeError(
                f"{format_hang_up(self._host, self._stream)} Of the command: {unknown}"
            )
        return UnknownOutcomeError(
            f"{self._host.name} hung up after the command was sent and before its end was seen: "
            f"{unknown}"
        )

    def _make_silence_error(self) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"{self._host.name} gave no sign for {self._limits.unacknowledged:g} s after the "
            "command was sent, as if it were cut off: it may or may not have run, and may still "
            "be running. Look at the host and at the way there"
        )


class _RunningCommand:
    """One command on a channel of its own. began: when the host may have been told it, or 0."""

    def __init__(
        self,
        host: Host,
        limits: SshLimits,
        shell: Shell,
        hooks: RunHooks,
        channel: paramiko.Channel,
    ) -> None:
        self._host, self._limits, self._shell, self._channel = host, limits, shell, channel
        self._wrapped = WrappedCommand(shell, on_output=hooks.on_output)
        # Readable once something has come, on either stream.
        self._poll = select.poll()
        self._sending = threading.Lock()
        self._stdin_thread: threading.Thread | None = None
        self.started_at = 0.0

    def start(self) -> None:
        """Have the host run it, and tell the script there what it waits for."""
        channel = self._channel
        channel.settimeout(self._limits.channel + self._limits.unacknowledged)
        try:
            self._poll.register(channel.fileno(), select.POLLIN)
        except OSError as trouble:
            raise SetupError(
                f"there is no room here to wait for {self._host.name} ({trouble.strerror}): "
                "raise the limit of open files of this process. Nothing was sent"
            ) from None
        self.started_at = time.monotonic()
        try:
            channel.exec_command(self._wrapped.line)
            channel.sendall(self._wrapped.word_line)
        except (paramiko.SSHException, OSError, EOFError):
            # What the host has said besides is still to be read, and may tell why.
            return

    def read_answer(self) -> Answer:
        """Read both streams until the end was seen. Raises HostError."""
        channel, wrapped = self._channel, self._wrapped
        while True:
            # Asked before reading: what came before the end of a stream is still to be read.
            over = bool(channel.eof_received or channel.closed)
            more = self._read_available()
            if self._shell.stdin and self._stdin_thread is None and wrapped.has_started:
                self._stdin_thread = threading.Thread(
                    target=self._send_stdin, name="stdin", daemon=True
                )
                self._stdin_thread.start()
            left = self.started_at + self._shell.deadline + self._limits.grace - time.monotonic()
            is_said = self._stdin_thread is None or not self._stdin_thread.is_alive() or left <= 0
            if (over and not more) or (wrapped.has_ended and is_said):
                break
            self._refuse_excess(left)
            if not more:
                self._poll.poll(min(left, _POLL_SECONDS) * 1000)
        if not wrapped.has_ended:
            self._require_connection()
        elif not channel.closed:
            channel.status_event.wait(_STATUS_SECONDS)
        return wrapped.read_answer(seconds=time.monotonic() - self.started_at)

    def close(self) -> None:
        # What is said to a channel that was closed makes sshd hang up on all of them.
        with self._sending, contextlib.suppress(Exception):
            self._channel.close()

    def _read_available(self) -> bool:
        """Take what came on both streams; say whether there was anything."""
        channel, wrapped, came = self._channel, self._wrapped, False
        if channel.recv_ready() and (out := channel.recv(_READ_BYTES)):
            wrapped.out.add(out)
            came = True
        if channel.recv_stderr_ready() and (err := channel.recv_stderr(_READ_BYTES)):
            wrapped.err.add(err)
            came = True
        return came

    def _refuse_excess(self, left: float) -> None:
        if self._wrapped.out.size + self._wrapped.err.size > self._limits.output:
            raise OutputLimitError(
                f"the command said more than {self._limits.output // 1024 // 1024} MiB and was "
                f"cut off: whether {self._host.name} ran it to its end is not known"
            )
        if left <= 0:
            raise CommandTimeoutError(
                f"{self._host.name} neither answered nor stopped the command within "
                f"{self._shell.deadline} s: it may still be running there"
            )

    def _require_connection(self) -> None:
        transport = self._channel.get_transport()
        if not transport.is_active():
            raise EOFError

    def _send_stdin(self) -> None:
        """Say what the command reads, by a thread of its own: meanwhile both streams are read."""
        channel, left = self._channel, memoryview(self._shell.stdin.encode())
        # Of what is ready to be read, nobody waits for anything.
        channel.settimeout(_SEND_SECONDS)
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            while left:
                with self._sending:
                    if channel.closed:
                        return
                    try:
                        left = left[channel.send(bytes(left[:_READ_BYTES])) :]
                    except TimeoutError:
                        continue
            with self._sending:
                if not channel.closed:
                    channel.shutdown_write()


class _Watchdog:
    """Closes a connection after so many seconds, or so many of silence, until the command ends.

    A machine that is gone is noticed by the kernel, which gets no confirmation. A peer whose
    machine confirms all and says nothing, such as an sshd that hangs, a host behind a jump host,
    or a firewall that answers for it, is noticed by asking it: sshd answers whatever runs there.
    """

    def __init__(
        self, session: SshSession, stream: Stream, *, seconds: float, silence: float
    ) -> None:
        self._session, self._stream, self._silence = session, stream, silence
        self._began = time.monotonic()
        self._end = self._began + seconds
        self._is_closing = False
        self.channel: paramiko.Channel | None = None
        self.is_silent = False

    def check(self, now: float) -> None:
        silent = now - max(self._stream.last_heard, self._began)
        if not self._is_closing and (silent >= self._silence or now >= self._end):
            self._is_closing, self.is_silent = True, silent >= self._silence
            # Where a jump host carries it, closing says so there and may have to wait for room.
            threading.Thread(target=self._session.close, name="cut", daemon=True).start()
        elif silent >= self._silence / 4 and self._session.is_connected:
            self._session.send_keepalive()
        if self.channel is not None and not self._session.is_connected:
            # paramiko waits without end for a reply, and misses a connection that ends just then.
            self.channel.event.set()


class _WatchdogThread:
    """Looks after every command under way: one thread, which sleeps while there is none."""

    def __init__(self) -> None:
        self._watchdogs: set[_Watchdog] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, watch: _Watchdog) -> None:
        with self._changed:
            self._watchdogs.add(watch)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="watch", daemon=True)
                thread.start()
                self._thread = thread
            if len(self._watchdogs) == 1:
                self._changed.notify()

    def remove(self, watch: _Watchdog) -> None:
        with self._changed:
            self._watchdogs.discard(watch)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._watchdogs))
            time.sleep(_CHECK_SECONDS)
            with self._changed:
                watches = tuple(self._watchdogs)
            for watch in watches:
                try:
                    watch.check(time.monotonic())
                except Exception:
                    # One connection's trouble must not leave all the others without a watch.
                    log.exception("a connection could not be looked after")


# There is one for the whole process, as there is one clock.
_CHECK_SECONDS = 0.25
_WATCHDOGS = _WatchdogThread()
