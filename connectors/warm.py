"""A warm transport: paramiko's, but for its thread, which ends once the login is done.

From then on the reactor reads for it, so that hundreds of idle connections wake nobody. A host
that agrees only to ciphers whose packets do not tell their length keeps its thread, and so does
one behind a jump host: the plain way, as paramiko has it.

What this overrides is private to paramiko: its version is pinned, and tests hold this against real
sshd's.
"""


# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false

import struct
import threading
from collections.abc import Callable
from typing import Any, ClassVar, cast

import paramiko
from paramiko import transport as theirs
from paramiko.common import (
    MSG_DEBUG,
    MSG_DISCONNECT,
    MSG_IGNORE,
    MSG_UNIMPLEMENTED,
    cMSG_GLOBAL_REQUEST,
    cMSG_UNIMPLEMENTED,
)
from paramiko.message import Message
from paramiko.ssh_exception import MessageOrderError, SSHException

from connectors.packets import HandedOver, WarmPacketizer
from connectors.reactor import REACTOR
from connectors.talk import OPENED, SPOKEN, Talk, opening
from connectors.wire import Wire

_KEX = range(30, 42)


def _spoken(kind: int) -> Callable[[Any, Message], None]:
    """Return what takes a message on a channel: on a command's, or on one of paramiko's own."""
    paramikos = paramiko.Transport._channel_handler_table[kind]

    def take(channel: Any, message: Message) -> None:
        if isinstance(channel, Talk):
            channel.hear(kind, message.get_remainder())
            channel.wake()
        else:
            paramikos(channel, message)

    return take


class WarmTransport(paramiko.Transport):
    """Begins as paramiko's own does, in a thread. wire: what it speaks over.

    plain: stay so, with a thread for as long as the connection stands.
    """

    _channel_handler_table: ClassVar = {kind: _spoken(kind) for kind in SPOKEN}

    def __init__(self, wire: Wire, *, plain: bool, **more: Any) -> None:
        super().__init__(cast("Any", wire), packetizer_class=WarmPacketizer, **more)
        self._wire = wire
        self._plain = plain or not wire.can_be_handed_over
        self._held_back: list[Message] = []
        self._ending = threading.Lock()
        # Whether nothing new is begun on it: it ends with the last that is under way.
        self.retired = False
        # By our own numbers for them, as these stand in packets.
        self._talks: dict[bytes, Talk] = {}
        # Whom the reactor wakes when it has taken all that came. Its own: no other thread's.
        self._woken = set[Talk]()

    @property
    def last_heard(self) -> float:
        """When anything came from the host, by the monotonic clock."""
        return self._wire.last_heard

    def begin(self, talk: Talk) -> None:
        """Ask the host for a channel for this. Raises SSHException if the connection has ended."""
        with self.lock:
            if not self.active:
                raise SSHException("the connection has ended")
            number = self._next_channel()
            self._channels.put(number, talk)
            self.channels_seen[number] = True
            self._talks[number.to_bytes(4)] = talk
        talk.number = number
        self.say(opening(number))

    def forget(self, talk: Talk) -> None:
        """Hear no more of it, whether or not it was begun."""
        if talk.number >= 0:
            self._talks.pop(talk.number.to_bytes(4), None)
            self._unlink_channel(talk.number)

    def retire(self) -> None:
        """End with the last that is under way: one who gets no further cuts nobody else off.

        Whether the host is still there, whoever waits for it finds out by themselves.
        """
        self.retired = True
        self._end_if_over()

    def say(self, message: bytes) -> None:
        told = Message(message)
        with self.clear_to_send_lock:
            may_send = self.active and self.clear_to_send.is_set()
            if may_send:
                self._send_message(told)
        if not may_send:
            self._send_user_message(told)

    def ask_for_a_sign(self) -> None:
        """Have the host answer, that it does not know what this is; see RFC 4254, 4."""
        if not self.clear_to_send.is_set():
            return  # new keys are being agreed, in which it is to say something anyway
        question = Message()
        question.add_byte(cMSG_GLOBAL_REQUEST)
        question.add_string("keepalive@openssh.com")
        question.add_boolean(True)  # noqa: FBT003 - as the protocol has it: an answer is wanted
        self._send_user_message(question)

    def _unlink_channel(self, chanid: int) -> None:
        super()._unlink_channel(chanid)
        if self.retired:
            self._end_if_over()

    def _end_if_over(self) -> None:
        with self.lock:
            is_over = not len(self._channels)
        if is_over:
            self.close()

    def _log(self, level: int, msg: object, *args: object) -> None:
        """Say nothing: what matters of it is told in words of ours."""

    def run(self) -> None:
        try:
            super().run()
        except HandedOver:
            theirs._active_threads.remove(self)  # pyright: ignore[reportUnknownMemberType]
            self._wire.hand_over(self)
            # It was closed in between, and the reactor does not hear of that.
            if not self.active:
                self._end(None)

    def _auth_trigger(self) -> None:
        # Called in the thread, once the host has let us in and before anybody hears of it.
        super()._auth_trigger()
        if not self._plain:
            cast("WarmPacketizer", self.packetizer).hands_over = True

    def readable(self) -> None:
        """Take what has come, as far as it makes whole packets."""
        self._take_all(self._wire.fill)

    def writable(self) -> None:
        """Send what there is room for now; take what was read before the reactor listened."""
        self._take_all(self._wire.drain)

    def wake(self) -> None:
        woken, self._woken = self._woken, set()
        for one in woken:
            one.wake()

    def _take_all(self, go_on: Callable[[], bool]) -> None:
        packetizer = cast("WarmPacketizer", self.packetizer)
        read = self._wire.read
        trouble: Exception | None = None
        try:
            goes_on = go_on()
            while payloads := packetizer.payloads(read):
                first = packetizer.sequence_number - len(payloads)
                for number, payload in enumerate(payloads, first):
                    if not self._heard(payload):
                        goes_on = self._take(payload, number) and goes_on
                if packetizer.need_rekey() and not self.in_kex:
                    self._send_kex_init()
            if goes_on:
                return
            trouble = EOFError()
        except Exception as befell:  # noqa: BLE001 - as in paramiko's own thread: it ends us
            trouble = befell
        self._end(trouble)

    def _heard(self, payload: bytes) -> bool:
        """Have a command's talk hear what is for it; False if it is for nobody's."""
        kind, talk = payload[0], self._talks.get(payload[1:5])
        if talk is None or self._expected_packet:
            return False
        if kind in SPOKEN:
            talk.hear(kind, payload[5:])
            self._woken.add(talk)
        elif kind == OPENED:
            talk.opened(*struct.unpack_from(">3I", payload, 5))
        else:
            return False
        return True

    def _take(self, payload: bytes, number: int) -> bool:
        """Do what a message asks for, as Transport.run does; False if it ends the connection.

        number: its packet's sequence number.
        """
        kind, message = payload[0], Message(payload[1:])
        message.seqno = number & 0xFFFFFFFF
        if kind == MSG_DISCONNECT:
            self._parse_disconnect(message)
            return False
        if kind in {MSG_IGNORE, MSG_DEBUG}:
            self._enforce_strict_kex(kind)
            return True
        if self._expected_packet:
            self._keep_to_order(kind)
        return self._handle(kind, message)

    def _handle(self, kind: int, message: Message) -> bool:
        if kind in _KEX and self.kex_engine is not None:
            self.kex_engine.parse_next(kind, message)
        elif kind in self._handler_table:
            self._handler_table[kind](message)
        elif kind in self._channel_handler_table:
            return self._hand_to_channel(kind, message)
        elif self.auth_handler is not None and kind in self.auth_handler._handler_table:
            self.auth_handler._handler_table[kind](message)
        elif kind != MSG_UNIMPLEMENTED:
            self._say_unimplemented(message)
        return True

    def _keep_to_order(self, kind: int) -> None:
        if kind not in cast("tuple[int, ...]", self._expected_packet):
            fault = MessageOrderError if self.agreed_on_strict_kex else SSHException
            raise fault(f"Expecting packet from {self._expected_packet!r}, got {kind}")
        self._expected_packet = ()

    def _hand_to_channel(self, kind: int, message: Message) -> bool:
        number = message.get_int()
        channel = self._channels.get(number)
        if channel is not None:
            self._channel_handler_table[kind](channel, message)
        return channel is not None or number in self.channels_seen

    def _say_unimplemented(self, message: Message) -> None:
        answer = Message()
        answer.add_byte(cMSG_UNIMPLEMENTED)
        answer.add_int(message.seqno)
        self._send_message(answer)

    def _parse_channel_open_success(self, m: Message) -> None:
        told = m.asbytes()
        talk = self._talks.get(told[:4])
        if talk is None:
            super()._parse_channel_open_success(m)
        else:
            talk.opened(*struct.unpack_from(">3I", told, 4))

    def _parse_channel_open_failure(self, m: Message) -> None:
        talk = self._talks.get(m.asbytes()[:4])
        if talk is None:
            super()._parse_channel_open_failure(m)
        else:
            talk.refuse()

    def _send_user_message(self, data: Message) -> None:
        if not REACTOR.runs_this and threading.current_thread() is not self:
            super()._send_user_message(data)
            return
        # Whoever reads must not wait until new keys are agreed: it is who agrees on them.
        with self.clear_to_send_lock:
            if self.clear_to_send.is_set():
                self._send_message(data)
            else:
                self._held_back.append(data)

    def _parse_newkeys(self, m: Message) -> None:
        super()._parse_newkeys(m)
        self._send_held_back()

    def _send_held_back(self) -> None:
        with self.clear_to_send_lock:
            held, self._held_back = self._held_back, []
            for message in held:
                self._send_message(message)

    def _end(self, trouble: Exception | None) -> None:
        """End the connection for everybody who uses it, as Transport.run does."""
        with self._ending:
            self.saved_exception = self.saved_exception or trouble
            for channel in list(self._channels.values()):
                channel._unlink()
            self.active = False
            # Those too that were begun just now.
            for talk in list(self._talks.values()):
                talk._unlink()
            self.packetizer.close()
            if self.completion_event is not None:
                self.completion_event.set()
            if self.auth_handler is not None:
                self.auth_handler.abort()
            for event in list(self.channel_events.values()):
                event.set()
