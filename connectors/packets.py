"""The packets of a warm transport: paramiko's, with a short way for what is sealed by AES-GCM.

paramiko takes a dozen calls for each part of a packet, and a command takes sixteen packets. Here
all that has come is opened in one go. Every other cipher, a packet in whose wake new keys are due,
and all else that is rare goes paramiko's own way. The packets are those of RFC 4253, 6 and of
RFC 5647.

What this overrides is private to paramiko: its version is pinned, and tests hold this against real
sshd's.
"""


# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportAttributeAccessIssue=false

import math
import struct
import time
from typing import Any

from paramiko.message import Message
from paramiko.packet import Packetizer
from paramiko.ssh_exception import SSHException

from connectors.talk import SPOKEN

_LONGEST = 1024 * 1024
_TAG = 16
_BLOCK = 16


class HandedOver(BaseException):
    """Ends the thread of a transport whose login is done. No fault: paramiko must not catch it."""


class WarmPacketizer(Packetizer):
    """Asks for new keys after 32 GiB, half of what RFC 4344 allows for AES.

    With paramiko's 512 MiB a warm connection would come to it within days, and data that is under
    way just then can be lost: https://github.com/paramiko/paramiko/issues/822
    """

    REKEY_BYTES = 2**35
    # Whether packets tell their length before they are decrypted.
    tells_length = False
    hands_over = False
    # By when keys must be agreed, by the monotonic clock: paramiko starts a thread to tell that.
    _agreed_by = math.inf

    def start_handshake(self, timeout: float) -> None:
        self._agreed_by = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        return time.monotonic() > self._agreed_by

    def complete_handshake(self) -> None:
        self._agreed_by = math.inf

    def set_inbound_cipher(self, *args: Any, **named: Any) -> None:
        super().set_inbound_cipher(*args, **named)
        self.tells_length = bool(named.get("etm") or named.get("aead"))

    def read_message(self) -> tuple[int, Message]:
        if self.hands_over and self.tells_length:
            raise HandedOver
        return super().read_message()

    @property
    def sequence_number(self) -> int:
        """That of the packet that comes next."""
        return self._Packetizer__sequence_number_in

    def payloads(self, read: bytearray) -> list[bytes]:
        """Return what is within the whole packets that stand at the beginning, and take it away.

        Nothing is opened beyond one that is not spoken on a channel: with it the keys may change.
        Raises whatever is wrong with the first of them.
        """
        if not self._is_whole(read):
            return []
        if not self._opens_plainly(len(read)):
            kind, message = super().read_message()
            return [bytes((kind,)) + message.asbytes()]
        return self._opened(read)

    def _opened(self, read: bytearray) -> list[bytes]:
        payloads: list[bytes] = []
        seen, iv = bytes(read), self._Packetizer__iv_in
        decrypt = self._Packetizer__block_engine_in.decrypt
        fixed, counter = iv[:4], int.from_bytes(iv[4:])
        at, end = 0, len(seen)
        try:
            while at + 4 <= end:
                told = seen[at : at + 4]
                length = int.from_bytes(told)
                after = at + 4 + length + _TAG
                if after > end:
                    break
                text = decrypt(fixed + counter.to_bytes(8), seen[at + 4 : after], told)
                payload = text[1 : length - text[0]]
                kind = payload[0]
                payloads.append(payload)
                at, counter = after, counter + 1
                if kind not in SPOKEN:
                    break
        except Exception:
            # What came before it counts. It is the first of the next time.
            if not payloads:
                raise
        del read[:at]
        self._Packetizer__iv_in = fixed + counter.to_bytes(8)
        self._count_in(len(payloads), at)
        return payloads

    def _count_in(self, packets: int, size: int) -> None:
        number = self._Packetizer__sequence_number_in + packets
        self._Packetizer__sequence_number_in = number & 0xFFFFFFFF
        self._Packetizer__received_packets += packets
        self._Packetizer__received_bytes += size

    def send_message(self, data: Message) -> None:
        payload = data.asbytes()
        with self._Packetizer__write_lock:
            if self._seals_plainly(len(payload)):
                self._send_sealed(payload)
            else:
                super().send_message(data)

    def _send_sealed(self, payload: bytes) -> None:
        # 4 bytes at least. That they are not random does no harm where a counter is encrypted.
        padding = 3 + _BLOCK - (len(payload) + 4) % _BLOCK
        told = (1 + len(payload) + padding).to_bytes(4)
        text = bytes((padding,)) + payload + bytes(padding)
        iv = self._Packetizer__iv_out
        packet = told + self._Packetizer__block_engine_out.encrypt(iv, text, told)
        self._Packetizer__iv_out = iv[:4] + (int.from_bytes(iv[4:]) + 1).to_bytes(8)
        number = self._Packetizer__sequence_number_out + 1
        self._Packetizer__sequence_number_out = number & 0xFFFFFFFF
        self.write_all(packet)
        self._Packetizer__sent_bytes += len(packet)
        self._Packetizer__sent_packets += 1

    def _opens_plainly(self, size: int) -> bool:
        """Say whether so many bytes hold nothing but packets that are to be opened and counted."""
        return (
            self._Packetizer__aead_in
            and self._Packetizer__compress_engine_in is None
            and not self._Packetizer__need_rekey
            and self._Packetizer__received_bytes + size < self.REKEY_BYTES
            # A packet is longer than a byte.
            and self._Packetizer__received_packets + size < self.REKEY_PACKETS
        )

    def _seals_plainly(self, size: int) -> bool:
        return (
            self._Packetizer__aead_out
            and self._Packetizer__compress_engine_out is None
            and self._Packetizer__sent_bytes + size + 64 < self.REKEY_BYTES
            and self._Packetizer__sent_packets + 1 < self.REKEY_PACKETS
        )

    def _is_whole(self, read: bytearray) -> bool:
        if len(read) < 4:
            return False
        if not self.tells_length:
            raise SSHException("the host has changed to ciphers that hide the length of packets")
        (length,) = struct.unpack_from(">I", read)
        if length > _LONGEST:
            raise SSHException("a packet is too long")
        return len(read) >= 4 + length + self.get_mac_size_in()
