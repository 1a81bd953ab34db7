"""One warm SSH connection to one host, on which commands run."""

import contextlib
import time
from pathlib import Path

import paramiko

from connectors import clearance, hearing, keyfile
from connectors.command import Answer, Shell
from connectors.inventory import Host
from connectors.talk import Talk
from connectors.transport import Gone, Limits, TurnedAway, dial, opened, place
from connectors.trouble import HostTrouble, Interrupted, TimedOut, TooMuchOutput, Unreachable
from connectors.warm import WarmTransport
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
        # Where nobody listens meanwhile, and there is nothing to say, only the end matters.
        patient = not shell.stdin and not hearing.somebody_listens()
        # What needs no last word leaves as soon as there is a channel, and wakes nobody for that.
        at_once = not clearance.is_asked_for()
        talk = Talk(self._transport, line=wrapped.line if at_once else "", patient=patient)
        # paramiko waits without end for room to send. Whatever wedges, the connection is closed
        # when even a host that says nothing would have been given up.
        seconds = self._limits.channel + shell.deadline + self._limits.grace + 1
        silence = self._limits.unacknowledged
        with Watch(self._transport, seconds=seconds, silence=silence) as watch:
            try:
                opened_by = self._begin(talk)
                if not at_once:
                    self._tell_if_cleared(talk, wrapped.line, opened_by)
                return self._run(talk, shell, wrapped, opened_by)
            except Interrupted:
                if watch.fell_silent:
                    raise self._silent() from None
                raise
            finally:
                with contextlib.suppress(Exception):
                    talk.close()
                self._transport.forget(talk)

    def _begin(self, talk: Talk) -> float:
        """Ask for a channel; return by when there must be one."""
        try:
            self._transport.begin(talk)
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            raise self._gone() from None
        return time.monotonic() + self._limits.channel

    def _tell_if_cleared(self, talk: Talk, line: str, opened_by: float) -> None:
        """Wait for the channel, ask for the last word, and tell the host."""
        while not talk.is_open:
            talk.look()
            left = self._left_to_open(talk, opened_by)
            if not talk.is_open:
                talk.wait(left)
        clearance.ask()
        try:
            talk.tell(line)
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            raise self._broken() from None

    def _left_to_open(self, talk: Talk, opened_by: float) -> float:
        """Return the seconds that the host has yet to open the channel. Nothing was sent yet."""
        left = opened_by - time.monotonic()
        if talk.refused:
            raise TurnedAway(
                f"{place(self._host)} refuses one more session on our connection: "
                "raise MaxSessions in its sshd_config, or let commands through one after another"
            )
        if (talk.closed or left <= 0) and talk.give_up():
            raise self._gone()
        return left

    def _run(self, talk: Talk, shell: Shell, wrapped: Wrapped, opened_by: float) -> Answer:
        try:
            self._listen(talk, shell, wrapped, opened_by)
        except HostTrouble:
            raise
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            raise self._broken() from None
        if not self.alive and not wrapped.ended:
            raise self._broken()
        # The host counts a session until its shell is gone, so the next one would be one too many.
        talk.wait_for_status(1.0)
        return wrapped.answer(seconds=time.monotonic() - talk.began)

    def _listen(self, talk: Talk, shell: Shell, wrapped: Wrapped, opened_by: float) -> None:
        """Read both streams as they come, feed stdin as it goes, until the end or a limit."""
        stdin: memoryview | None = memoryview(shell.stdin.encode()) if shell.stdin else None
        while True:
            talk.look()
            if not talk.told:
                talk.wait(min(self._left_to_open(talk, opened_by), _LOOK_SECONDS))
                continue
            # Asked before reading: what came before the end of a stream is still to be read.
            over = talk.eof or talk.closed
            _read(talk, wrapped)
            stdin = _feed(talk, stdin) if wrapped.begun else stdin
            left = talk.began + shell.deadline + self._limits.grace - time.monotonic()
            if over or (wrapped.ended and (stdin is None or left <= 0)):
                return
            if wrapped.out.size + wrapped.err.size > self._limits.output:
                raise TooMuchOutput(self._too_much())
            if left <= 0:
                raise TimedOut(
                    f"{self._host.name} neither answered nor stopped the command within "
                    f"{shell.deadline} s: it may still be running there"
                )
            # An end is looked for, too, whose channel some hosts keep open while anything that
            # was started there still runs.
            talk.wait(min(left, _LOOK_SECONDS))

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


def _read(talk: Talk, wrapped: Wrapped) -> None:
    out, err = talk.take()
    if out:
        wrapped.out.add(out)
    if err:
        wrapped.err.add(err)


def _feed(talk: Talk, stdin: memoryview | None) -> memoryview | None:
    """Send what there is room for; return the rest, or None once there is nothing to say."""
    if stdin is None or talk.closed:
        return None
    while stdin and (room := talk.room) > 0:
        talk.send(bytes(stdin[:room]))
        stdin = stdin[room:]
    if not stdin:
        talk.end_input()
        return None
    return stdin
