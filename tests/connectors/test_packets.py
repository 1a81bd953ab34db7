"""The short way of packets sealed by AES-GCM, against paramiko's own way, without a host."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from paramiko.message import Message
from paramiko.packet import Packetizer
from paramiko.ssh_exception import SSHException

from connectors import packets
from connectors.packets import WarmPacketizer
from connectors.talk import CLOSE, DATA, EOF

_KEY = b"k" * 16
# Near where its lower half is full, and the upper one must grow.
_IV = b"salt" + (2**32 - 2).to_bytes(8)
_NEWKEYS = 21


class Line:
    """A stream that keeps what is sent on it, and hands it out to whoever reads there."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)

    def recv(self, size: int) -> bytes:
        data = bytes(self.sent[:size])
        del self.sent[:size]
        return data

    def close(self) -> None:
        return


@pytest.fixture
def line() -> Line:
    return Line()


def _keyed(packetizer: Packetizer) -> None:
    one = {"block_engine": AESGCM(_KEY), "block_size": 16, "mac_size": 16, "aead": True}
    none = {"mac_engine": None, "mac_key": None}
    packetizer.set_outbound_cipher(**one, **none, iv_out=_IV)  # pyright: ignore[reportArgumentType]
    packetizer.set_inbound_cipher(**one, **none, iv_in=_IV)  # pyright: ignore[reportArgumentType]
    packetizer._initial_kex_done = True


@pytest.fixture
def ours(line: Line) -> WarmPacketizer:
    packetizer = WarmPacketizer(line)  # pyright: ignore[reportArgumentType] - all that it needs of one
    _keyed(packetizer)
    return packetizer


@pytest.fixture
def theirs(line: Line) -> Packetizer:
    packetizer = Packetizer(line)  # pyright: ignore[reportArgumentType] - as above
    _keyed(packetizer)
    return packetizer


def _said(*messages: bytes) -> list[Message]:
    return [Message(message) for message in messages]


def _state(packetizer: Packetizer, way: str) -> tuple[object, ...]:
    names = ("sequence_number_{}", "iv_{}", "{}_bytes", "{}_packets")
    full = {"in": "received", "out": "sent"}[way]
    told = (way, way, full, full)
    return tuple(
        getattr(packetizer, "_Packetizer__" + name.format(word))
        for name, word in zip(names, told, strict=True)
    )


_MESSAGES = [bytes((DATA,)) + b"x" * size for size in (*range(40), 1000, 32_768)]


def test_what_we_seal_paramiko_opens_and_both_count_alike(
    line: Line, ours: WarmPacketizer, theirs: Packetizer
):
    for message in _said(*_MESSAGES):
        ours.send_message(message)
    for message in _MESSAGES:
        kind, rest = theirs.read_message()
        assert bytes((kind,)) + rest.asbytes() == message
    assert line.sent == b""
    assert _state(ours, "out") == _state(theirs, "in")


def test_what_paramiko_seals_we_open_in_one_go_and_both_count_alike(
    line: Line, ours: WarmPacketizer, theirs: Packetizer
):
    for message in _said(*_MESSAGES):
        theirs.send_message(message)
    read, line.sent = line.sent, bytearray()
    assert ours.payloads(read) == _MESSAGES
    assert (read, ours.payloads(read)) == (b"", [])
    assert _state(ours, "in") == _state(theirs, "out")


def test_half_a_packet_waits_for_its_other_half(
    line: Line, ours: WarmPacketizer, theirs: Packetizer
):
    for message in _said(*_MESSAGES[:3]):
        theirs.send_message(message)
    came: list[bytes] = []
    read = bytearray()
    for byte in bytes(line.sent):
        read.append(byte)
        came += ours.payloads(read)
    assert (came, read) == (_MESSAGES[:3], b"")


def test_nothing_is_opened_beyond_a_message_with_which_the_keys_may_change(
    line: Line, ours: WarmPacketizer, theirs: Packetizer
):
    for message in _said(bytes((EOF, 1)), bytes((_NEWKEYS,)), bytes((CLOSE, 1))):
        theirs.send_message(message)
    read, line.sent = line.sent, bytearray()
    assert ours.payloads(read) == [bytes((EOF, 1)), bytes((_NEWKEYS,))]
    _keyed(ours)
    with pytest.raises(InvalidTag):
        ours.payloads(read)


def test_what_came_before_a_damaged_packet_counts_and_the_damage_is_told(
    line: Line, ours: WarmPacketizer, theirs: Packetizer
):
    for message in _said(*_MESSAGES[:3]):
        theirs.send_message(message)
    read = bytearray(line.sent)
    read[-1] ^= 1
    assert ours.payloads(read) == _MESSAGES[:2]
    with pytest.raises(InvalidTag):
        ours.payloads(read)


def test_a_packet_that_is_too_long_is_refused_before_it_has_come(ours: WarmPacketizer):
    with pytest.raises(SSHException, match="too long"):
        ours.payloads(bytearray((packets._LONGEST + 1).to_bytes(4)))


@pytest.mark.parametrize("limit", ["REKEY_BYTES", "REKEY_PACKETS"])
def test_new_keys_are_due_neither_sooner_nor_later_than_by_paramikos_own_way(
    line: Line, monkeypatch: pytest.MonkeyPatch, limit: str
):
    monkeypatch.setattr(WarmPacketizer, limit, 5000 if limit == "REKEY_BYTES" else 100)
    monkeypatch.setattr(Packetizer, limit, getattr(WarmPacketizer, limit))
    ours, theirs = WarmPacketizer(line), Packetizer(line)  # pyright: ignore[reportArgumentType] - as above
    _keyed(ours)
    _keyed(theirs)
    wanted: list[bool] = []
    for _ in range(120):
        theirs.send_message(Message(bytes((DATA,)) + b"x" * 20))
        read = bytearray(line.sent)
        line.sent = read
        assert len(ours.payloads(read)) == 1
        wanted.append(ours.need_rekey())
        assert ours.need_rekey() == theirs.need_rekey()
    assert (wanted[0], wanted[-1]) == (False, True)
    sender = WarmPacketizer(Line())  # pyright: ignore[reportArgumentType] - as above
    _keyed(sender)
    for due in wanted:
        sender.send_message(Message(bytes((DATA,)) + b"x" * 20))
        assert sender.need_rekey() == due
