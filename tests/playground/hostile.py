"""A hostile SSH server that accepts every login, in its own process on loopback.

It attacks at `keys`, right after the key exchange, at `login`, or at `exec`, once a command
is sent.
"""

import io
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Literal, Self

import paramiko
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from paramiko.message import Message

from connectors.inventory import Host
from tests.playground.keys import KeyPair, make_key
from tests.processes import get_fork_context

When = Literal["keys", "login", "exec"]
_UNASKED = (2, 3, 4, 7, 20, 21, 30, 31, 50, 52, 53, 60, 80, 81, 82, 90, 91, 92, 93, 94, 95, 96)
_SECONDS = 60


class Hostile:
    """raw: bytes that it says in the place of SSH, by the name of what it does."""

    def __init__(self, attack: str, when: When = "login", seed: int = 0) -> None:
        context = get_fork_context()
        self._ours, self._theirs = context.Pipe()
        self._process = context.Process(
            target=_run_server, args=(self._theirs, attack, when, seed), daemon=True
        )
        self.port = 0
        self.public = ""

    def __enter__(self) -> Self:
        self._process.start()
        self._theirs.close()
        self.port, self.public = self._ours.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._ours.close()

    def host(self, key: str, *, public: str = "") -> Host:
        """Return it as an inventory names it. public: another host key than its own."""
        return Host.model_validate(
            {
                **{"name": "evil1", "address": "127.0.0.1", "area": "infra", "key": key},
                **{"port": self.port, "host_key": public or self.public},
            }
        )


class _Everyone(paramiko.ServerInterface):
    def __init__(self) -> None:
        self.sent = threading.Event()

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - paramiko's own
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - as above
        return AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002 - as above
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:  # noqa: ARG002 - as above
        self.sent.set()
        return True


def _build_message(kind: int, *rest: bytes | int) -> Message:
    """Return a message: a number takes four bytes, and bytes stand as they are."""
    message = Message()
    message.add_byte(bytes([kind]))
    for one in rest:
        message.add_bytes(one) if isinstance(one, bytes) else message.add_int(one)
    return message


def _text(text: bytes) -> bytes:
    return len(text).to_bytes(4) + text


def _garbage(chance: random.Random) -> Iterator[Message]:
    while True:
        count = chance.choice([0, 1, 5, 40, 2000, 30_000])
        numbers = chance.choice([b"", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 4])
        yield _build_message(chance.choice(_UNASKED), numbers, chance.randbytes(count))


def _always(message: Message) -> Callable[[random.Random], Iterator[Message]]:
    def again(_: random.Random) -> Iterator[Message]:
        while True:
            yield message

    return again


def _once(message: Message) -> Callable[[random.Random], Iterator[Message]]:
    return lambda _: iter([message])


# What is sealed as any packet is, by name.
SEALED: dict[str, Callable[[random.Random], Iterator[Message]]] = {
    "extensions": _once(_build_message(7, 0xFFFFFFFF)),
    "questions": _once(_build_message(60, _text(b""), _text(b""), _text(b""), 0xFFFFFFFF)),
    "requests": _always(_build_message(80, _text(b"x"), b"\1")),
    "statements": _always(_build_message(80, _text(b"x"), b"\0")),
    "ignored": _always(_build_message(2, _text(b"x" * 16))),
    "debug": _always(_build_message(4, b"\1", _text(b"x" * 16), _text(b""))),
    "unknown": _always(_build_message(3, 1)),
    "opens": _always(_build_message(90, _text(b"x11"), 7, 1, 1, _text(b"here"), 1)),
    "agents": _always(_build_message(90, _text(b"auth-agent@openssh.com"), 7, 1, 1)),
    "windows": _always(_build_message(93, 0, 1)),
    "nothing": _always(_build_message(94, 0, _text(b""))),
    "output": _always(_build_message(94, 0, _text(b"x" * 30_000))),
    "garbage": _garbage,
}
# What is said in the place of a server's first words, by name.
RAW: dict[str, Callable[[random.Random], Iterator[bytes]]] = {
    "banner": lambda _: iter([b"x" * 10_000_000]),
    "banners": lambda _: iter([b"hello\r\n" * 10_000]),
    "length": lambda _: iter([b"SSH-2.0-x\r\n", b"\xff\xff\xff\xf0" * 1_000_000]),
    "packets": lambda chance: iter([b"SSH-2.0-x\r\n", chance.randbytes(300_000)]),
    "unsealed": lambda _: iter([b"SSH-2.0-x\r\n\0\0\0\x0c\x06\x07", b"\xff" * 4 + b"\0" * 6]),
}
KEYS = ("rekey", "another-key")


def _serve(stream: socket.socket, attack: str, when: str, pair: KeyPair, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    with suppress(Exception):
        if attack in RAW:
            for words in RAW[attack](chance):
                stream.sendall(words)
            stream.recv(1)
            return
        theirs, everyone = paramiko.Transport(stream), _Everyone()
        theirs.add_server_key(_loaded(pair))
        agreed = threading.Event()
        theirs.start_server(event=agreed, server=everyone)
        agreed.wait(_SECONDS)
        if when != "keys":
            channel = theirs.accept(_SECONDS) if when == "exec" else None
            while not theirs.is_authenticated():
                agreed.wait(0.01)
            if channel is not None:
                everyone.sent.wait(_SECONDS)
        _harm(theirs, attack, chance)


def _harm(theirs: paramiko.Transport, attack: str, chance: random.Random) -> None:
    if attack in KEYS:
        if attack == "another-key":
            theirs.add_server_key(_loaded(make_key()))
        while theirs.is_active():
            theirs.renegotiate_keys()
        return
    for message in SEALED[attack](chance):
        if not theirs.is_active():
            return
        theirs.packetizer.send_message(message)
    theirs.join(_SECONDS)


def _loaded(pair: KeyPair) -> paramiko.PKey:
    return paramiko.Ed25519Key.from_private_key(io.StringIO(pair.private.decode()))


def _run_server(parent: Connection, attack: str, when: str, seed: int) -> None:
    """Send the port and the public key to the parent, and serve until it ends."""
    pair = make_key()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        parent.send((listener.getsockname()[1], pair.public))
        threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
        while True:
            stream, _ = listener.accept()
            words = (stream, attack, when, pair, seed)
            threading.Thread(target=_serve, args=words, daemon=True).start()


def _end_with_parent(parent: Connection) -> None:
    with suppress(EOFError):
        parent.recv()
    os._exit(0)
