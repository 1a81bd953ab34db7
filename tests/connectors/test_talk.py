"""What is said on one command's channel, and when, without a host."""

import struct

import pytest

from connectors.talk import ADJUST, CLOSE, DATA, EOF, EXTENDED, FAILURE, REQUEST, SUCCESS, Talk

THEIRS = 7
ROOM = 100_000


class Said:
    """A connection that keeps what is said on it: the kind of each message, and what follows."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def say(self, message: bytes) -> None:
        assert message[1:5] == struct.pack(">I", THEIRS)
        self.messages.append(message)

    @property
    def kinds(self) -> list[int]:
        return [message[0] for message in self.messages]


@pytest.fixture
def said() -> Said:
    return Said()


def _talk(said: Said, line: str = "", *, patient: bool = False) -> Talk:
    return Talk(said, line=line, patient=patient)


def _opened(said: Said, window: int = ROOM) -> Talk:
    talk = _talk(said)
    talk.opened(THEIRS, window, 32_768)
    talk.tell("cat")
    said.messages.clear()
    return talk


def _string(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def test_what_needs_no_last_word_is_told_once_there_is_a_channel(said: Said):
    talk = _talk(said, "uptime")
    assert not talk.told
    talk.opened(THEIRS, ROOM, 32_768)
    assert talk.told
    assert said.messages == [
        struct.pack(">BI", REQUEST, THEIRS) + _string(b"exec") + b"\1" + _string(b"uptime")
    ]


def test_what_needs_a_last_word_is_not_told_before_it(said: Said):
    talk = _talk(said)
    talk.opened(THEIRS, ROOM, 32_768)
    assert (talk.is_open, talk.told, said.messages) == (True, False, [])


def test_what_was_given_up_is_never_told_however_late_the_channel_opens(said: Said):
    talk = _talk(said, "reboot")
    assert talk.give_up()
    talk.opened(THEIRS, ROOM, 32_768)
    assert not talk.told
    assert said.kinds == [CLOSE]


def test_what_was_told_cannot_be_given_up_any_more(said: Said):
    talk = _talk(said, "reboot")
    talk.opened(THEIRS, ROOM, 32_768)
    assert not talk.give_up()


def test_nothing_is_told_on_a_channel_that_the_host_has_closed(said: Said):
    talk = _talk(said)
    talk.opened(THEIRS, ROOM, 32_768)
    talk.hear(CLOSE, b"")
    talk.tell("reboot")
    assert not talk.told
    assert said.kinds == [CLOSE]


@pytest.mark.parametrize("kind", [CLOSE, FAILURE])
def test_a_channel_is_closed_once_by_us(said: Said, kind: int):
    talk = _opened(said)
    talk.hear(kind, b"")
    talk.close()
    assert said.kinds == [CLOSE]


def test_what_the_host_says_is_told_apart_by_its_streams(said: Said):
    talk = _opened(said)
    talk.hear(DATA, _string(b"one "))
    talk.hear(EXTENDED, struct.pack(">I", 1) + _string(b"oh"))
    talk.hear(EXTENDED, struct.pack(">I", 2) + _string(b"nobody knows what this is"))
    talk.hear(DATA, _string(b"two"))
    assert talk.take() == (b"one two", b"oh")
    assert talk.take() == (b"", b"")


def test_the_host_may_go_on_when_much_of_what_it_said_was_taken(said: Said):
    talk = _opened(said)
    for _ in range(7):
        talk.hear(DATA, _string(b"x" * 32_000))
    assert said.kinds == []
    talk.take()
    assert said.messages == [struct.pack(">BII", ADJUST, THEIRS, 224_000)]


def test_no_more_is_sent_than_the_host_has_room_for(said: Said):
    talk = _opened(said, window=10)
    assert talk.room == 10
    talk.send(b"0123456789")
    assert talk.room == 0
    talk.hear(ADJUST, struct.pack(">I", 3))
    assert talk.room == 3
    talk.hear(ADJUST, struct.pack(">I", 10**6))
    assert talk.room < 32_768
    talk.end_input()
    assert said.kinds == [DATA, EOF]


def test_who_is_patient_is_woken_by_the_end_alone_or_by_much(said: Said):
    for end in (b"exit-status", b"exit-signal"):
        talk = _talk(said, "uptime", patient=True)
        talk.opened(THEIRS, ROOM, 32_768)
        talk.look()
        for kind, rest in ((DATA, _string(b"up")), (EOF, b"")):
            talk.hear(kind, rest)
            talk.wake()
            assert not talk.wait(0)
        talk.hear(REQUEST, _string(end) + b"\0" + struct.pack(">I", 0))
        talk.wake()
        assert talk.wait(0)
    talk = _talk(said, "yes", patient=True)
    talk.look()
    talk.hear(DATA, _string(b"x" * 40_000))
    talk.wake()
    assert talk.wait(0)


def test_what_the_host_asks_is_answered(said: Said):
    talk = _opened(said)
    talk.hear(REQUEST, _string(b"exit-status") + b"\1" + struct.pack(">I", 0))
    talk.hear(REQUEST, _string(b"keepalive@openssh.com") + b"\1")
    talk.hear(REQUEST, _string(b"xon-xoff") + b"\0")
    assert said.kinds == [SUCCESS, FAILURE]


def test_who_waits_is_woken_where_there_will_be_no_channel(said: Said):
    for befell in (Talk.refuse, Talk._unlink):  # pyright: ignore[reportPrivateUsage] - paramiko calls it so
        talk = _talk(said, "uptime", patient=True)
        talk.look()
        befell(talk)
        assert talk.wait(0)
        assert talk.closed
    assert said.messages == []
