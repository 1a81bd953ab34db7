"""The wire below a transport, once the reactor has it: what a hostile host makes us keep."""

import io
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import paramiko
import pytest
from paramiko.common import AUTH_SUCCESSFUL, cMSG_GLOBAL_REQUEST

from connectors import ssh, transport, wire
from connectors.inventory import Host
from connectors.ssh import Session
from connectors.transport import Limits, Located
from tests.connectors.test_ssh import eventually
from tests.playground.keys import KeyPair, make_key

KIB = 1024


class _Everyone(paramiko.ServerInterface):
    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - paramiko's own
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - as above
        return AUTH_SUCCESSFUL


class _Deaf:
    """A socket from which nothing is read any more once *deaf* is set."""

    _closed = False  # paramiko asks its socket by this name

    def __init__(self, stream: socket.socket, deaf: threading.Event) -> None:
        self._stream, self._deaf = stream, deaf
        self.over = threading.Event()

    def recv(self, size: int) -> bytes:
        if self._deaf.is_set():
            self.over.wait(30)
            return b""
        return self._stream.recv(size)

    def send(self, data: bytes) -> int:
        return self._stream.send(data)

    def settimeout(self, seconds: float) -> None:
        self._stream.settimeout(seconds)

    def close(self) -> None:
        self.over.set()
        self._stream.close()


def _loaded(pair: KeyPair) -> paramiko.PKey:
    return paramiko.Ed25519Key.from_private_key(io.StringIO(pair.private.decode()))


def _ask_without_end(listener: socket.socket, pair: KeyPair, deaf: threading.Event) -> None:
    """Let anybody in; then ask for answers and take in none of them."""
    stream, _ = listener.accept()
    theirs = paramiko.Transport(_Deaf(stream, deaf))  # pyright: ignore[reportArgumentType] - all that paramiko needs of one
    theirs.add_server_key(_loaded(pair))
    theirs.start_server(event=threading.Event(), server=_Everyone())
    question = paramiko.Message()
    question.add_byte(cMSG_GLOBAL_REQUEST)
    question.add_string("x" * 8)
    question.add_boolean(True)
    deaf.wait(30)
    with suppress(Exception):
        while theirs.is_active():
            theirs._send_user_message(question)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]
    theirs.close()


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel keep little for us, so that it is soon full."""

    def dialled(host: Located, limits: Limits) -> socket.socket:
        stream = transport.dial(host, limits)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
        return stream

    monkeypatch.setattr(ssh, "dial", dialled)


@contextmanager
def _met(directory: Path) -> Generator[tuple[Session, threading.Event]]:
    """Connect to such a host; it begins when the event is set."""
    pair, deaf = make_key(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        thread = threading.Thread(target=_ask_without_end, args=(listener, pair, deaf))
        thread.start()
        host = Host.model_validate(
            {
                **{"name": "web1", "address": "127.0.0.1", "area": "infra"},
                "port": listener.getsockname()[1],
                "key": str(make_key().write(directory / "key")),
                "host_key": pair.public,
            }
        )
        session = ssh.connect(host, directory)
        try:
            yield session, deaf
        finally:
            session.close()
            deaf.set()
            thread.join()


def _unsent(session: Session) -> int:
    return len(session.transport._wire._unsent)  # pyright: ignore[reportPrivateUsage]


def test_t_h7_a_host_that_asks_and_takes_in_no_answer_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wire, "_MOST_UNSENT", 64 * KIB)
    with _met(tmp_path) as (session, deaf):
        assert session.alive
        deaf.set()
        assert eventually(lambda: not session.alive, seconds=30)
        assert _unsent(session) <= 65 * KIB


def test_t_h7_without_the_bound_its_answers_would_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wire, "_MOST_UNSENT", 2**40)
    with _met(tmp_path) as (session, deaf):
        deaf.set()
        assert eventually(lambda: _unsent(session) > 80 * KIB, seconds=30)
        assert session.alive


class _Ear:
    """Notes what the reactor calls."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def readable(self) -> None:
        self.heard.append("readable")

    def writable(self) -> None:
        self.heard.append("writable")

    def wake(self) -> None:
        self.heard.append("wake")


@pytest.mark.parametrize("left", [b"", b"what came with it"])
def test_what_was_read_before_the_reactor_listens_is_looked_at_though_nothing_follows(left: bytes):
    ours, theirs = socket.socketpair()
    ear = _Ear()
    with theirs:
        below = wire.Wire(ours)
        theirs.sendall(b"said" + left)
        assert below.recv(4) == b"said"
        below.hand_over(ear)
        if left:
            assert eventually(lambda: ear.heard[:1] == ["writable"])
        assert below.read == left
        theirs.sendall(b"more")
        assert eventually(lambda: "readable" in ear.heard)
        assert bool(left) == ("writable" in ear.heard)
        below.close()


def test_what_was_closed_while_it_was_handed_over_is_listened_to_by_nobody():
    """Whoever closes a connection does not wait for the login that comes to its end just then."""
    ours, theirs = socket.socketpair()
    ear = _Ear()
    with theirs:
        below = wire.Wire(ours)
        below.close()
        below.hand_over(ear)
        with pytest.raises(EOFError):
            below.recv(1)
    assert ear.heard == []


def test_a_packet_and_what_comes_with_it_are_read_in_one_go():
    ours, theirs = socket.socketpair()
    with theirs:
        below = wire.Wire(ours)
        theirs.sendall(b"a packet of some parts")
        assert [below.recv(2), below.recv(6)] == [b"a ", b"packet"]
        theirs.close()
        assert below.recv(100) == b" of some parts"
        with pytest.raises(EOFError):
            below.recv(1)
        below.close()


class Ending:
    """A channel of a connection to a jump host that ends at this moment."""

    def close(self) -> None:
        raise EOFError


def test_a_wire_is_closed_though_the_jump_host_is_gone_at_the_same_time():
    wire.Wire(cast("Any", Ending())).close()
