"""A syslog server receives a checkpoint for every new head of the log, as RFC 5424 defines it."""

import re
import socket
import threading
from pathlib import Path

import pytest

from bot.audit.checkpoints import Checkpoint, sign_checkpoint
from bot.integrations import witness_file
from bot.integrations.syslog import LogServer
from bot.model.merkle import Tree
from bot.model.signing import SigningKey

POINT = sign_checkpoint(
    "keyturn/0123456789abcdef",
    Tree().add_leaves([b"leaf"] * 31),
    1_700_000_000_123_456,
    [SigningKey.create()],
)
_RFC_5424 = re.compile(
    r"<109>1 2023-11-14T22:13:20\.123456Z \S+ keyturn \d+ checkpoint - "
    r"keyturn checkpoint at=1700000000123456 "
)


def _read_back(message: str, directory: Path) -> list[Checkpoint]:
    file = directory / "messages"
    file.write_text(f"Nov 14 22:13:20 other: noise\n{message}\n")
    return witness_file.read_checkpoints(file)


def test_checkpoint_reaches_a_syslog_server_over_udp(tmp_path: Path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        LogServer.parse_address(f"udp://127.0.0.1:{server.getsockname()[1]}").send_checkpoint(
            POINT
        )
        message = server.recv(4096).decode()
    assert _RFC_5424.match(message)
    assert _read_back(message, tmp_path) == [POINT]


def test_checkpoint_over_tcp_is_framed_with_its_length(tmp_path: Path):
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            line, _ = server.accept()
            with line:
                while part := line.recv(4096):
                    heard.append(part)

        listener = threading.Thread(target=listen)
        listener.start()
        LogServer.parse_address(f"tcp://127.0.0.1:{server.getsockname()[1]}").send_checkpoint(
            POINT
        )
        listener.join(10)
    length, _, message = b"".join(heard).decode().partition(" ")
    assert int(length) == len(message)
    assert _RFC_5424.match(message)
    assert _read_back(message, tmp_path) == [POINT]


def test_checkpoint_reaches_a_local_syslog_socket(tmp_path: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "log"))
        server.settimeout(10)
        LogServer.parse_address(f"unix://{tmp_path / 'log'}").send_checkpoint(POINT)
        assert _RFC_5424.match(server.recv(4096).decode())


def test_unreachable_syslog_server_raises_an_error(tmp_path: Path):
    with pytest.raises(OSError, match="refused"):
        LogServer.parse_address("tcp://127.0.0.1:1").send_checkpoint(POINT)
    with pytest.raises(OSError, match="No such file"):
        LogServer.parse_address(f"unix://{tmp_path / 'gone'}").send_checkpoint(POINT)


@pytest.mark.parametrize("address", ["syslog://host", "udp://", "unix://", "host:514", ""])
def test_invalid_syslog_address_is_rejected(address: str):
    with pytest.raises(ValueError, match="a log server is"):
        LogServer.parse_address(address)


def test_checkpoint_is_read_from_a_json_line_of_the_journal(tmp_path: Path):
    file = tmp_path / "journal"
    file.write_text(f'{{"MESSAGE":"run 7 step 1: {POINT.line}","_PID":"1"}}\n')
    assert witness_file.read_checkpoints(file) == [POINT]
