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

from connectors import clearance, keyfile
from connectors.command import Answer, Shell
from connectors.inventory import Host
from connectors.stream import Stream
from connectors.transport import (
    Gone,
    Limits,
    TurnedAway,
    dial,
    hung_up_on,
    opened,
    over,
    place,
)
from connectors.trouble import (
    HostTrouble,
    Interrupted,
    NotSetUp,
    TimedOut,
    TooMuchOutput,
    Unreachable,
)
from connectors.wrapper import Wrapped

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
# The host counts a session until its shell is gone, so the next one would be one too many.
_STATUS_SECONDS = 1.0
_AT_ONCE = 1024 * 1024
# While the host takes in no more, whoever says something looks so often whether it is over.
_SAY_SECONDS = 0.2


def connect(
    host: Host, keys: Path, limits: Limits | None = None, *, via: "Session | None" = None
) -> "Session":
    """Connect to *host* and log in.

    keys: the directory that key files are relative to. via: the jump host's connection.
    """
    limits = limits or Limits()
    key = keyfile.load(keys / host.key)
    below = via.tunnel(host) if via else dial(host, limits)
    return Session(host, *opened(host, key, limits, below), limits, via=via)


class Session:
    """A connection that is logged in. Any number of threads may run commands on it at once."""

    def __init__(
        self,
        host: Host,
        transport: paramiko.Transport,
        stream: Stream,
        limits: Limits,
        *,
        via: "Session | None",
    ) -> None:
        self.via = via
        self._host = host
        self._transport = transport
        self._stream = stream
        self._limits = limits
        # Whether nothing new is begun on it: it ends with the last that is under way.
        self._retired = False
        self._asking: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether commands may be begun on it."""
        return self.stands and not self._retired and not self.old

    @property
    def stands(self) -> bool:
        """Whether something may be under way on it, though it takes nothing new."""
        return self._transport.is_active()

    @property
    def old(self) -> bool:
        """Whether it, or what carries it, is to be followed by a new connection with new keys."""
        return self._stream.old or (self.via is not None and self.via.old)

    @property
    def transport(self) -> paramiko.Transport:
        """The paramiko transport, to look at and not to use."""
        return self._transport

    def close(self) -> None:
        self._transport.close()
        self._stream.close()

    def retire(self) -> None:
        """End with the last that is under way: one who gets no further cuts nobody else off."""
        self._retired = True
        self._close_if_over()

    def ask_for_a_sign(self) -> None:
        """Have the host answer, if only that it does not know what this is; wait for nothing."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._asked, name="sign", daemon=True)
            self._asking.start()

    def tunnel(self, to: Host) -> Stream:
        """Open a stream from here to another host's SSH port.

        Our host says nothing of one that does not answer it, as long as it waits itself. So it is
        asked for a sign besides: what gives one carries others, who go on.
        """
        began = time.monotonic()
        self.ask_for_a_sign()
        self._stream.begin_work()
        try:
            channel = self._transport.open_channel(
                "direct-tcpip",
                (to.address, to.port),
                ("127.0.0.1", 0),
                timeout=self._limits.connect,
            )
        except Exception as trouble:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            self._end_work()
            self._refuse_tunnel(to, trouble, began)
        return over(channel, to, self._limits, on_close=self._end_work)

    def run(self, shell: Shell) -> Answer:
        """Run a resolved command and return its answer; trouble says whether it was started."""
        self._stream.begin_work()
        try:
            with self._watched(shell) as watch:
                return self._run(shell, watch)
        finally:
            self._end_work()

    def _run(self, shell: Shell, watch: "_Watch") -> Answer:
        channel = self._channel()
        watch.channel = channel
        told = _Told(self._host, self._limits, shell, channel)
        try:
            # Whoever was to be asked may say no, and then nothing was sent.
            clearance.ask()
            if channel.closed or not self._transport.is_active():
                raise self._gone()
            told.begin()
            return told.answer()
        except Exception as trouble:
            if isinstance(trouble, HostTrouble) and not isinstance(trouble, Interrupted):
                raise
            # paramiko hands on whatever its thread died of.
            if not told.began:
                raise self._gone() from None
            if watch.fell_silent:
                raise self._silent() from None
            if isinstance(trouble, Interrupted):
                raise
            raise self._broken() from None
        finally:
            told.close()

    def _channel(self) -> paramiko.Channel:
        began = time.monotonic()
        try:
            return self._transport.open_session(timeout=self._limits.channel)
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            waited = time.monotonic() - began
            if self._transport.is_active() and waited < self._limits.channel:
                raise TurnedAway(
                    f"{place(self._host)} refuses one more session on our connection: raise "
                    "MaxSessions in its sshd_config, or let commands through one after another"
                ) from None
            raise self._gone() from None

    def _refuse_tunnel(self, to: Host, trouble: Exception, began: float) -> NoReturn:
        name = self._host.name
        if isinstance(trouble, paramiko.ChannelException):
            raise Unreachable(
                f"the jump host {name} does not get through to {place(to)}: "
                f"{trouble.text or 'no reason given'}. "
                "Is it up, and does AllowTcpForwarding let us?"
            ) from None
        if self._transport.is_active() and self._stream.last_heard > began:
            raise Unreachable(
                f"the jump host {name} does not get through to {place(to)} within "
                f"{self._limits.connect:g} s: is it up, and does a firewall let the jump host "
                "through?"
            ) from None
        raise self._gone() from None

    def _end_work(self) -> None:
        self._stream.end_work()
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self._retired and not self._stream.under_way:
            self.close()

    def _asked(self) -> None:
        # A connection that has ended meanwhile is told by whoever waits on it.
        with contextlib.suppress(Exception):
            self._transport.global_request("keepalive@openssh.com", wait=True)

    @contextlib.contextmanager
    def _watched(self, shell: Shell) -> "Generator[_Watch]":
        # paramiko waits without end for replies, and for room to send. Whatever wedges, the
        # connection is closed when even a host that says nothing would have been given up.
        limits = self._limits
        seconds = limits.channel + shell.deadline + limits.grace + 1
        watch = _Watch(self, self._stream, seconds=seconds, silence=limits.unacknowledged)
        _WATCHMAN.add(watch)
        try:
            yield watch
        finally:
            _WATCHMAN.forget(watch)

    def _gone(self) -> Unreachable:
        # Others may run on it, and wait longer for a sign than one does for a channel.
        self.retire()
        if self._stream.cut:
            return Unreachable(f"{hung_up_on(self._host, self._stream)} Nothing was sent")
        return Gone(f"the connection to {place(self._host)} was lost before anything was sent")

    def _broken(self) -> Interrupted:
        unknown = "it may or may not have run, and may still be running. Look at the host"
        if self._stream.cut:
            return Interrupted(f"{hung_up_on(self._host, self._stream)} Of the command: {unknown}")
        return Interrupted(
            f"{self._host.name} hung up after the command was sent and before its end was seen: "
            f"{unknown}"
        )

    def _silent(self) -> Interrupted:
        return Interrupted(
            f"{self._host.name} gave no sign for {self._limits.unacknowledged:g} s after the "
            "command was sent, as if it were cut off: it may or may not have run, and may still "
            "be running. Look at the host and at the way there"
        )


class _Told:
    """One command on a channel of its own. began: when the host may have been told it, or 0."""

    def __init__(
        self, host: Host, limits: Limits, shell: Shell, channel: paramiko.Channel
    ) -> None:
        self._host, self._limits, self._shell, self._channel = host, limits, shell, channel
        self._wrapped = Wrapped(shell)
        # Readable once something has come, on either stream.
        self._heard = select.poll()
        self._saying = threading.Lock()
        self._mouth: threading.Thread | None = None
        self.began = 0.0

    def begin(self) -> None:
        """Have the host run it, and tell the script there what it waits for."""
        channel = self._channel
        channel.settimeout(self._limits.channel + self._limits.unacknowledged)
        try:
            self._heard.register(channel.fileno(), select.POLLIN)
        except OSError as trouble:
            raise NotSetUp(
                f"there is no room here to wait for {self._host.name} ({trouble.strerror}): "
                "raise the limit of open files of this process. Nothing was sent"
            ) from None
        self.began = time.monotonic()
        try:
            channel.exec_command(self._wrapped.line)
            channel.sendall(self._wrapped.word_line)
        except (paramiko.SSHException, OSError, EOFError):
            # What the host has said besides is still to be read, and may tell why.
            return

    def answer(self) -> Answer:
        """Read both streams until the end was seen. Raises HostTrouble."""
        channel, wrapped = self._channel, self._wrapped
        while True:
            # Asked before reading: what came before the end of a stream is still to be read.
            over = bool(channel.eof_received or channel.closed)
            more = self._read()
            if self._shell.stdin and self._mouth is None and wrapped.begun:
                self._mouth = threading.Thread(target=self._say, name="stdin", daemon=True)
                self._mouth.start()
            left = self.began + self._shell.deadline + self._limits.grace - time.monotonic()
            is_said = self._mouth is None or not self._mouth.is_alive() or left <= 0
            if (over and not more) or (wrapped.ended and is_said):
                break
            self._keep_to_limits(left)
            if not more:
                self._heard.poll(min(left, _LOOK_SECONDS) * 1000)
        if not wrapped.ended:
            self._require_connection()
        elif not channel.closed:
            channel.status_event.wait(_STATUS_SECONDS)
        return wrapped.answer(seconds=time.monotonic() - self.began)

    def close(self) -> None:
        # What is said to a channel that was closed makes sshd hang up on all of them.
        with self._saying, contextlib.suppress(Exception):
            self._channel.close()

    def _read(self) -> bool:
        """Take what came on both streams; say whether there was anything."""
        channel, wrapped, came = self._channel, self._wrapped, False
        if channel.recv_ready() and (out := channel.recv(_AT_ONCE)):
            wrapped.out.add(out)
            came = True
        if channel.recv_stderr_ready() and (err := channel.recv_stderr(_AT_ONCE)):
            wrapped.err.add(err)
            came = True
        return came

    def _keep_to_limits(self, left: float) -> None:
        if self._wrapped.out.size + self._wrapped.err.size > self._limits.output:
            raise TooMuchOutput(
                f"the command said more than {self._limits.output // 1024 // 1024} MiB and was "
                f"cut off: whether {self._host.name} ran it to its end is not known"
            )
        if left <= 0:
            raise TimedOut(
                f"{self._host.name} neither answered nor stopped the command within "
                f"{self._shell.deadline} s: it may still be running there"
            )

    def _require_connection(self) -> None:
        transport = self._channel.get_transport()
        if not transport.is_active():
            raise EOFError

    def _say(self) -> None:
        """Say what the command reads, by a thread of its own: meanwhile both streams are read."""
        channel, left = self._channel, memoryview(self._shell.stdin.encode())
        # Of what is ready to be read, nobody waits for anything.
        channel.settimeout(_SAY_SECONDS)
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            while left:
                with self._saying:
                    if channel.closed:
                        return
                    try:
                        left = left[channel.send(bytes(left[:_AT_ONCE])) :]
                    except TimeoutError:
                        continue
            with self._saying:
                if not channel.closed:
                    channel.shutdown_write()


class _Watch:
    """Closes a connection after so many seconds, or so many of silence, until the command ends.

    A machine that is gone is noticed by the kernel, which gets no confirmation. A peer whose
    machine confirms all and says nothing, such as an sshd that hangs, a host behind a jump host,
    or a firewall that answers for it, is noticed by asking it: sshd answers whatever runs there.
    """

    def __init__(
        self, session: Session, stream: Stream, *, seconds: float, silence: float
    ) -> None:
        self._session, self._stream, self._silence = session, stream, silence
        self._began = time.monotonic()
        self._end = self._began + seconds
        self._cut = False
        self.channel: paramiko.Channel | None = None
        self.fell_silent = False

    def look(self, now: float) -> None:
        silent = now - max(self._stream.last_heard, self._began)
        if not self._cut and (silent >= self._silence or now >= self._end):
            self._cut, self.fell_silent = True, silent >= self._silence
            # Where a jump host carries it, closing says so there and may have to wait for room.
            threading.Thread(target=self._session.close, name="cut", daemon=True).start()
        elif silent >= self._silence / 4 and self._session.stands:
            self._session.ask_for_a_sign()
        if self.channel is not None and not self._session.stands:
            # paramiko waits without end for a reply, and misses a connection that ends just then.
            self.channel.event.set()


class _Watchman:
    """Looks after every command under way: one thread, which sleeps while there is none."""

    def __init__(self) -> None:
        self._watches: set[_Watch] = set()
        self._some = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, watch: _Watch) -> None:
        with self._some:
            self._watches.add(watch)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="watch", daemon=True)
                thread.start()
                self._thread = thread
            if len(self._watches) == 1:
                self._some.notify()

    def forget(self, watch: _Watch) -> None:
        with self._some:
            self._watches.discard(watch)

    def _run(self) -> None:
        while True:
            with self._some:
                self._some.wait_for(lambda: bool(self._watches))
            time.sleep(_WATCH_SECONDS)
            with self._some:
                watches = tuple(self._watches)
            for watch in watches:
                try:
                    watch.look(time.monotonic())
                except Exception:
                    # One connection's trouble must not leave all the others without a watch.
                    log.exception("a connection could not be looked after")


# There is one for the whole process, as there is one clock.
_WATCH_SECONDS = 0.25
_WATCHMAN = _Watchman()
