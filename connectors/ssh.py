"""One warm SSH connection to one host, on which commands run."""

import contextlib
import time
from pathlib import Path

import paramiko

from connectors import clearance, hearing, keyfile
from connectors.command import Answer, Shell
from connectors.inventory import Host
from connectors.transport import Gone, Limits, TurnedAway, dial, opened, place
from connectors.trouble import Interrupted, TimedOut, TooMuchOutput, Unreachable
from connectors.warm import Wake, WarmTransport, say_nothing_more
from connectors.watch import Watch
from connectors.wrapper import Wrapped

_LOOK_SECONDS = 1.0


def connect(
    host: Host, keys: Path, limits: Limits | None = None, *, via: "Session | None" = None
) -> "Session":
    """Connect to *host* and log in.

    keys: the directory that key files are relative to. via: the jump host's connection.
    """
    limits = limits or Limits()
    key = keyfile.load(keys / host.key)
    stream = via.tunnel(host) if via else dial(host, limits)
    return Session(host, opened(host, key, limits, stream), limits, via=via)


class Session:
    """A connection that is logged in. Any number of threads may run commands on it at once."""

    def __init__(
        self,
        host: Host,
        transport: WarmTransport,
        limits: Limits,
        *,
        via: "Session | None",
    ) -> None:
        self.via = via
        self._host = host
        self._transport = transport
        self._limits = limits

    @property
    def alive(self) -> bool:
        return self._transport.is_active()

    @property
    def transport(self) -> WarmTransport:
        """The paramiko transport, to look at and not to use."""
        return self._transport

    def close(self) -> None:
        self._transport.close()

    def tunnel(self, to: Host) -> paramiko.Channel:
        """Open a stream from here to another host's SSH port."""
        try:
            return self._transport.open_channel(
                "direct-tcpip",
                (to.address, to.port),
                ("127.0.0.1", 0),
                timeout=self._limits.connect,
            )
        except paramiko.ChannelException as trouble:
            raise Unreachable(
                f"the jump host {self._host.name} does not get through to {place(to)}: "
                f"{trouble.text or 'no reason given'}. "
                "Is it up, and does AllowTcpForwarding let us?"
            ) from None
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            raise self._gone() from None

    def run(self, shell: Shell) -> Answer:
        """Run a resolved command and return its answer; trouble says whether it was started."""
        wrapped = Wrapped(shell)
        # paramiko waits without end for the reply to exec and for room to send. Whatever wedges,
        # the connection is closed when even a host that says nothing would have been given up.
        seconds = self._limits.channel + shell.deadline + self._limits.grace + 1
        silence = self._limits.unacknowledged
        with Watch(self._transport, seconds=seconds, silence=silence) as watch:
            channel = self._channel()
            try:
                clearance.ask()
                return self._run(channel, shell, wrapped)
            except Interrupted:
                if watch.fell_silent:
                    raise self._silent() from None
                raise
            finally:
                say_nothing_more(channel)
                with contextlib.suppress(Exception):
                    channel.close()

    def _run(self, channel: paramiko.Channel, shell: Shell, wrapped: Wrapped) -> Answer:
        begun = time.monotonic()
        try:
            # Where nobody listens meanwhile, and there is nothing to say, only the end matters.
            patient = not shell.stdin and not hearing.somebody_listens()
            wake = Wake(self._transport, channel, patient=patient)
            self._transport.run_on(channel, wrapped.line)
            end = begun + shell.deadline + self._limits.grace
            self._listen(channel, shell, wrapped, end, wake)
        except (TimedOut, TooMuchOutput):
            raise
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            raise self._broken() from None
        if not wrapped.ended and not self.alive:
            raise self._broken()
        # The host counts a session until its shell is gone, so the next one would be one too many.
        channel.status_event.wait(1.0)
        return wrapped.answer(seconds=time.monotonic() - begun)

    def _listen(
        self, channel: paramiko.Channel, shell: Shell, wrapped: Wrapped, end: float, wake: Wake
    ) -> None:
        """Read both streams as they come, feed stdin as it goes, until the end or a limit."""
        stdin: memoryview | None = memoryview(shell.stdin.encode()) if shell.stdin else None
        while True:
            wake.clear()
            # Asked before reading: what came before the end of a stream is still to be read.
            over = channel.eof_received or channel.closed
            stdin = _feed(channel, stdin) if wrapped.begun else stdin
            _read(channel, wrapped)
            left = end - time.monotonic()
            if over or (wrapped.ended and (stdin is None or left <= 0)):
                return
            if wrapped.out.size + wrapped.err.size > self._limits.output:
                raise TooMuchOutput(self._too_much())
            if left <= 0:
                raise TimedOut(
                    f"{self._host.name} neither answered nor stopped the command within "
                    f"{shell.deadline} s: it may still be running there"
                )
            # Nothing tells that there is room again for stdin, so that is looked for; and so is
            # an end whose channel some hosts keep open while anything started there still runs.
            wake.wait(min(left, _LOOK_SECONDS if stdin is None else 0.01))

    def _channel(self) -> paramiko.Channel:
        try:
            return self._transport.open_session(timeout=self._limits.channel)
        except paramiko.ChannelException:
            raise TurnedAway(
                f"{place(self._host)} refuses one more session on our connection: "
                "raise MaxSessions in its sshd_config, or let commands through one after another"
            ) from None
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            raise self._gone() from None

    def _gone(self) -> Gone:
        self.close()
        return Gone(f"the connection to {place(self._host)} was lost before anything was sent")

    def _broken(self) -> Interrupted:
        return Interrupted(
            f"{self._host.name} hung up after the command was sent and before its end was seen: "
            "it may or may not have run, and may still be running. Look at the host"
        )

    def _silent(self) -> Interrupted:
        return Interrupted(
            f"{self._host.name} gave no sign for {self._limits.unacknowledged:g} s after the "
            "command was sent, as if it were cut off: it may or may not have run, and may still "
            "be running. Look at the host and at the way there"
        )

    def _too_much(self) -> str:
        return (
            f"the command said more than {self._limits.output // 1024 // 1024} MiB and was cut "
            f"off: whether {self._host.name} ran it to its end is not known"
        )


def _read(channel: paramiko.Channel, wrapped: Wrapped) -> None:
    # Each read takes all there is: part of one stream left behind would not wake us again.
    if channel.recv_ready():
        wrapped.out.add(channel.recv(2**30))
    if channel.recv_stderr_ready():
        wrapped.err.add(channel.recv_stderr(2**30))


def _feed(channel: paramiko.Channel, stdin: memoryview | None) -> memoryview | None:
    """Send what there is room for; return the rest, or None once there is nothing to say."""
    while stdin and channel.send_ready():
        try:
            stdin = stdin[channel.send(bytes(stdin[:32768])) :]
        except OSError:  # the command ended without reading it all
            return None
        if channel.closed:
            return None
    if stdin is not None and not stdin:
        channel.shutdown_write()
        return None
    return stdin
