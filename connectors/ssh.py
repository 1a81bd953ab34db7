"""SSH session: one connection to one host, on which any number of threads run commands."""

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
    NoCommandsError,
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
# The host counts a channel until its shell has ended: without a wait the next one could be one
# more than sshd allows.
_STATUS_SECONDS = 1.0
_READ_BYTES = 1024 * 1024
# How often a sender checks whether the command has ended while the host reads no more.
_SEND_SECONDS = 0.2
# An exit status that no forced command and no shell such as nologin has.
_PROBE_STATUS = 73


def connect(
    host: Host,
    keys: Path,
    limits: SshLimits | None = None,
    *,
    via: "SshSession | None" = None,
    load_key: key_file.LoadKey = key_file.load_key,
) -> "SshSession":
    """Connect to *host* and log in.

    Args:
        host: where to connect.
        keys: the directory that key files are relative to.
        limits: timeouts and sizes.
        via: the connection to the jump host.
        load_key: returns the key of a file.

    Raises:
        HostError: the host is unreachable, its key does not match, or it refuses the login.
    """
    limits = limits or SshLimits()
    key = load_key(keys / host.key)
    below = via.open_tunnel(host) if via else open_tcp_connection(host, limits)
    return SshSession(host, *open_transport(host, key, limits, below), limits, via=via)


class SshSession:
    """A connection that is logged in. Any number of threads can run commands on it."""

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
        # A retired session starts nothing new and closes after its last command.
        self._is_retired = False
        self._keepalive_thread: threading.Thread | None = None

    @property
    def is_usable(self) -> bool:
        """Whether new commands can start on it."""
        return self.is_connected and not self._is_retired and not self.is_expired

    @property
    def is_connected(self) -> bool:
        """Whether commands may still be running on it, though it may accept no new ones."""
        return self._transport.is_active()

    @property
    def is_expired(self) -> bool:
        """Whether it, or its jump host's connection, must be replaced to renew the keys."""
        return self._stream.is_expired or (self.via is not None and self.via.is_expired)

    @property
    def transport(self) -> paramiko.Transport:
        """The paramiko transport, for inspection only."""
        return self._transport

    def close(self) -> None:
        self._transport.close()
        self._stream.close()

    def retire(self) -> None:
        """Accept nothing new, and close after the last running command: it is not cut off."""
        self._is_retired = True
        self._close_if_retired()

    def send_keepalive(self) -> None:
        """Request a reply from the host, without waiting for it."""
        if self._keepalive_thread is None or not self._keepalive_thread.is_alive():
            self._keepalive_thread = threading.Thread(
                target=self._wait_for_keepalive, name="keepalive", daemon=True
            )
            self._keepalive_thread.start()

    def open_tunnel(self, host: Host) -> Stream:
        """Open a stream through this host to another host's SSH port.

        The jump host sends nothing while it waits for the other host. A keepalive shows whether
        the jump host itself still answers, so that its other tunnels are kept.
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
        except Exception as error:  # noqa: BLE001 - paramiko raises whatever ended its thread
            self._end_work()
            self._raise_tunnel_error(host, error, began)
        return make_stream(channel, host, self._limits, on_close=self._end_work)

    def run(self, shell: Shell, hooks: RunHooks = NO_HOOKS) -> Answer:
        """Run a resolved command and return its output.

        Raises HostError, whose `started` says whether the command ran.
        """
        self._stream.begin_work()
        try:
            with self._watch(shell) as watch:
                return self._run_watched(shell, hooks, watch)
        finally:
            self._end_work()

    def _run_watched(self, shell: Shell, hooks: RunHooks, watch: "_Watchdog") -> Answer:
        channel = self._open_channel()
        watch.channel = channel
        running = _RunningCommand(self._host, self._limits, shell, hooks, channel)
        try:
            hooks.before_send()
            if channel.closed or not self._transport.is_active():
                raise self._make_lost_error()
            running.start()
            return running.read_answer()
        except Exception as error:
            if isinstance(error, HostError) and not isinstance(error, UnknownOutcomeError):
                raise
            # paramiko raises whatever ended its thread.
            if not running.started_at:
                raise self._make_lost_error() from None
            if watch.is_silent:
                raise self._make_silence_error() from None
            if isinstance(error, UnknownOutcomeError):
                if running.has_ended_unstarted and not self._can_run_commands():
                    raise self._make_no_commands_error(running.last_line) from None
                raise
            raise self._make_hang_up_error() from None
        finally:
            running.close()

    def _can_run_commands(self) -> bool:
        """Return whether the login runs what it is sent; True if that is unknown.

        Missing output is no proof: a forced command may run the command and hide its output.
        """
        with contextlib.suppress(Exception), self._open_channel() as channel:
            channel.settimeout(self._limits.channel)
            channel.exec_command(f"exit {_PROBE_STATUS}")
            if channel.status_event.wait(self._limits.channel) and channel.exit_status >= 0:
                return channel.exit_status == _PROBE_STATUS
        return True

    def _open_channel(self) -> paramiko.Channel:
        began = time.monotonic()
        try:
            return self._transport.open_session(timeout=self._limits.channel)
        except Exception as error:  # paramiko raises whatever ended its thread
            if not self._transport.is_active():
                raise self._make_lost_error() from error
            if time.monotonic() - began < self._limits.channel:
                raise HostBusyError(
                    f"{format_address(self._host)} refuses another session on this connection: "
                    "raise MaxSessions in its sshd_config, or run fewer commands at a time"
                ) from None
            waited = f": it opened no channel within {self._limits.channel:g} s"
            raise self._make_lost_error(waited) from error

    def _raise_tunnel_error(self, to: Host, error: Exception, began: float) -> NoReturn:
        name = self._host.name
        if isinstance(error, paramiko.ChannelException):
            raise UnreachableError(
                f"the jump host {name} cannot connect to {format_address(to)}: "
                f"{error.text or 'no reason given'}. "
                "Check that the host is up and that AllowTcpForwarding permits the tunnel"
            ) from None
        if self._transport.is_active() and self._stream.last_received > began:
            raise UnreachableError(
                f"the jump host {name} cannot connect to {format_address(to)} within "
                f"{self._limits.connect:g} s: check that the host is up and that its firewall "
                "allows the jump host"
            ) from None
        raise self._make_lost_error() from None

    def _end_work(self) -> None:
        self._stream.end_work()
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self._is_retired and not self._stream.active_count:
            self.close()

    def _wait_for_keepalive(self) -> None:
        # The thread that waits for a command reports a connection that has ended.
        with contextlib.suppress(Exception):
            self._transport.global_request("keepalive@openssh.com", wait=True)

    @contextlib.contextmanager
    def _watch(self, shell: Shell) -> "Generator[_Watchdog]":
        # paramiko waits for replies, and for room to send, without a limit. So the connection is
        # closed once even a silent host would have been given up.
        limits = self._limits
        seconds = limits.channel + shell.deadline + limits.grace + 1
        watch = _Watchdog(self, self._stream, seconds=seconds, silence=limits.unacknowledged)
        _WATCHDOGS.add(watch)
        try:
            yield watch
        finally:
            _WATCHDOGS.remove(watch)

    def _make_lost_error(self, cause: str = "") -> UnreachableError:
        # Other commands may run on it, and wait longer for a reply than this one for a channel.
        self.retire()
        if self._stream.hang_up_reason:
            return UnreachableError(
                f"{format_hang_up(self._host, self._stream)}. Nothing was sent"
            )
        return ConnectionLostError(
            f"the connection to {format_address(self._host)} was lost before anything was sent"
            f"{cause}"
        )

    def _make_hang_up_error(self) -> UnknownOutcomeError:
        unknown = "The command may or may not have run, and may still be running. Check the host"
        if self._stream.hang_up_reason:
            return UnknownOutcomeError(f"{format_hang_up(self._host, self._stream)}. {unknown}")
        return UnknownOutcomeError(
            f"{self._host.name} closed the connection after the command was sent and before it "
            f"ended. {unknown}"
        )

    def _make_no_commands_error(self, last_line: str) -> NoCommandsError:
        return NoCommandsError(
            f"the login {self._host.user} on {self._host.name} runs no commands{last_line}: its "
            "shell is one such as nologin, or its sshd forces another command (ForceCommand, or "
            "command= in authorized_keys). Give it a shell such as /bin/sh, without a forced "
            "command. Nothing was started"
        )

    def _make_silence_error(self) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"{self._host.name} did not answer for {self._limits.unacknowledged:g} s after the "
            "command was sent. The command may or may not have run, and may still be running. "
            "Check the host and the network path to it"
        )


class _RunningCommand:
    """One command on a channel of its own."""

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
        # Readable once output has arrived on either stream.
        self._poll = select.poll()
        self._sending = threading.Lock()
        self._stdin_thread: threading.Thread | None = None
        # When the host may have received the command, by the monotonic clock; 0 before.
        self.started_at = 0.0

    @property
    def has_ended_unstarted(self) -> bool:
        """Whether the host ended it before the script printed its first line."""
        is_over = bool(self._channel.eof_received or self._channel.closed)
        return is_over and not self._wrapped.has_started

    @property
    def last_line(self) -> str:
        """The last line of output, in brackets; "" for none."""
        return self._wrapped.format_last_line()

    def start(self) -> None:
        """Send the command, and the line that the script on the host waits for."""
        channel = self._channel
        channel.settimeout(self._limits.channel + self._limits.unacknowledged)
        try:
            self._poll.register(channel.fileno(), select.POLLIN)
        except OSError as error:
            raise SetupError(
                f"Keyturn cannot wait for {self._host.name} ({error.strerror}): "
                "raise this process's limit of open files. Nothing was sent"
            ) from None
        self.started_at = time.monotonic()
        try:
            channel.exec_command(self._wrapped.line)
            channel.sendall(self._wrapped.word_line)
        except (paramiko.SSHException, OSError, EOFError):
            # The output that has already arrived may hold the reason.
            return

    def read_answer(self) -> Answer:
        """Read both streams to their end and return them. Raises HostError."""
        channel, wrapped = self._channel, self._wrapped
        while True:
            # Checked before reading, because data before the end of a stream is still to be read.
            over = bool(channel.eof_received or channel.closed)
            more = self._read_available()
            if self._shell.stdin and self._stdin_thread is None and wrapped.has_started:
                self._stdin_thread = threading.Thread(
                    target=self._send_stdin, name="stdin", daemon=True
                )
                self._stdin_thread.start()
            left = self.started_at + self._shell.deadline + self._limits.grace - time.monotonic()
            is_sent = self._stdin_thread is None or not self._stdin_thread.is_alive() or left <= 0
            if (over and not more) or (wrapped.has_ended and is_sent):
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
        # sshd closes the whole connection if data arrives for a channel that is closed.
        with self._sending, contextlib.suppress(Exception):
            self._channel.close()

    def _read_available(self) -> bool:
        """Read what has arrived on both streams; return whether there was anything."""
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
                f"the command printed more than {self._limits.output // 1024 // 1024} MiB and "
                f"was cut off: it is unknown whether {self._host.name} ran it to its end"
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
        """Send the command's standard input, in a thread of its own while output is read."""
        channel, left = self._channel, memoryview(self._shell.stdin.encode())
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
    """Closes the connection of a command after a time limit, or after a time of silence.

    The kernel notices a machine that is gone, because its packets are not acknowledged. A peer
    whose packets are acknowledged and that sends nothing (an sshd that hangs, a host behind a
    jump host, a firewall that answers for it) is noticed by a keepalive: sshd always answers it.
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
        silent = now - max(self._stream.last_received, self._began)
        if not self._is_closing and (silent >= self._silence or now >= self._end):
            self._is_closing, self.is_silent = True, silent >= self._silence
            # Closing a tunnel sends a message to the jump host and can block.
            threading.Thread(target=self._session.close, name="cut", daemon=True).start()
        elif silent >= self._silence / 4 and self._session.is_connected:
            self._session.send_keepalive()
        if self.channel is not None and not self._session.is_connected:
            # paramiko can miss a connection that ends just then, and would wait forever.
            self.channel.event.set()


class _WatchdogThread:
    """Checks all running commands in one thread, which sleeps while there are none."""

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
                    # An error with one connection must not end the checks of all others.
                    log.exception("could not check an SSH connection")


# One for the whole process.
_CHECK_SECONDS = 0.25
_WATCHDOGS = _WatchdogThread()
