"""The exchange: one command on a connection, from asking for its channel to its answer.

It never waits: whoever sees to it looks again when its bell is rung, or when it says. So a thread
sees to one of them, or to those of many hosts.
"""

import contextlib
import time
from collections.abc import Callable

from connectors import clearance, hearing
from connectors.command import Answer, Shell
from connectors.inventory import Host
from connectors.talk import Talk
from connectors.transport import Gone, Limits, TurnedAway, place
from connectors.trouble import HostTrouble, Interrupted, TimedOut, TooMuchOutput
from connectors.warm import WarmTransport
from connectors.watch import Watch
from connectors.wrapper import Wrapped

_LOOK_SECONDS = 1.0
# The host counts a session until its shell is gone, so the next one would be one too many.
_STATUS_SECONDS = 1.0


class Exchange:
    """bell: called, by whichever thread, when it is worth a look; must not wait. Without one,
    `wait` does.
    """

    def __init__(
        self,
        host: Host,
        transport: WarmTransport,
        limits: Limits,
        shell: Shell,
        bell: Callable[[], None] | None = None,
    ) -> None:
        self._host, self._transport, self._limits, self._shell = host, transport, limits, shell
        self._wrapped = Wrapped(shell)
        self._stdin: memoryview | None = memoryview(shell.stdin.encode()) if shell.stdin else None
        # What needs no last word leaves as soon as there is a channel, and wakes nobody for that.
        self._at_once = not clearance.is_asked_for()
        # Where nobody listens meanwhile, and there is nothing to say, only the end matters.
        patient = not shell.stdin and not hearing.somebody_listens()
        line = self._wrapped.line if self._at_once else ""
        self._talk = Talk(transport, line=line, patient=patient, bell=bell)
        self._opened_by = self._status_by = 0.0
        # paramiko waits without end for room to send. Whatever wedges, the connection is closed
        # when even a host that says nothing would have been given up.
        seconds = limits.channel + shell.deadline + limits.grace + 1
        self._watch = Watch(transport, seconds=seconds, silence=limits.unacknowledged)

    def begin(self) -> None:
        """Ask for a channel."""
        self._watch.begin()
        try:
            self._transport.begin(self._talk)
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            raise self._gone() from None
        self._opened_by = time.monotonic() + self._limits.channel

    def wait(self, seconds: float) -> None:
        """Wait until it is worth a look, or as long as that."""
        self._talk.wait(seconds)

    def look(self) -> Answer | float:
        """Return the answer, or for how many seconds at most nobody need look again.

        Raises HostTrouble, whose `started` tells whether the command may have run.
        """
        try:
            return self._looked()
        except Interrupted:
            if self._watch.fell_silent:
                raise self._silent() from None
            raise

    def close(self) -> None:
        """Be done with it, whether or not it came to its end."""
        with contextlib.suppress(Exception):
            self._talk.close()
        self._transport.forget(self._talk)
        self._watch.end()

    def _looked(self) -> Answer | float:
        self._talk.look()
        if not self._talk.told:
            left = self._to_open()
            if not self._talk.told:
                return left
        try:
            left = self._to_end()
        except HostTrouble:
            raise
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            raise self._broken() from None
        if left > 0:
            return left
        return self._wrapped.answer(seconds=time.monotonic() - self._talk.began)

    def _to_open(self) -> float:
        """Return for how many seconds nobody need look again. Nothing was sent yet.

        What needs a last word is told here, once there is a channel and it was asked for.
        """
        talk = self._talk
        left = self._opened_by - time.monotonic()
        if talk.refused:
            raise TurnedAway(
                f"{place(self._host)} refuses one more session on our connection: "
                "raise MaxSessions in its sshd_config, or let commands through one after another"
            )
        if (talk.closed or left <= 0) and talk.give_up():
            raise self._gone()
        if self._at_once or not talk.is_open:
            return max(0.0, min(left, _LOOK_SECONDS))
        clearance.ask()
        try:
            talk.tell(self._wrapped.line)
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            raise self._broken() from None
        return 0.0

    def _to_end(self) -> float:
        """Read both streams, feed stdin as it goes; return the seconds left, 0.0 at the end."""
        if not self._status_by:
            left = self._to_last_word()
            if left > 0:
                return left
            if not self._transport.is_active() and not self._wrapped.ended:
                raise self._broken()
            self._status_by = time.monotonic() + _STATUS_SECONDS
            self._talk.hear_out()
        over = self._talk.status or self._talk.closed
        return 0.0 if over else self._status_by - time.monotonic()

    def _to_last_word(self) -> float:
        talk, wrapped = self._talk, self._wrapped
        # Asked before reading: what came before the end of a stream is still to be read.
        over = talk.eof or talk.closed
        _read(talk, wrapped)
        if wrapped.begun:
            self._stdin = _feed(talk, self._stdin)
        left = talk.began + self._shell.deadline + self._limits.grace - time.monotonic()
        if over or (wrapped.ended and (self._stdin is None or left <= 0)):
            return 0.0
        if wrapped.out.size + wrapped.err.size > self._limits.output:
            raise TooMuchOutput(self._too_much())
        if left <= 0:
            raise TimedOut(
                f"{self._host.name} neither answered nor stopped the command within "
                f"{self._shell.deadline} s: it may still be running there"
            )
        # An end is looked for, too, whose channel some hosts keep open while anything that was
        # started there still runs.
        return min(left, _LOOK_SECONDS)

    def _gone(self) -> Gone:
        # Others may run on it, and wait longer for a sign than one does for a channel.
        self._transport.retire()
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
