"""Parser of OpenVPN's status files, recorded on a server and a client of OpenVPN 2.6.14."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from connectors import openvpn
from connectors.openvpn import OpenVpn, VpnClient
from connectors.rows import Rows
from tests.connectors.understanding import is_understood

FOR_ROOT = (openvpn.query_status(),)
ANSWERS = Path(__file__).parent / "answers" / "vpn"
FIRST, SECOND, THIRD = (
    (ANSWERS / f"openvpn-status-{version}.txt").read_text() for version in (1, 2, 3)
)
CLIENT = (ANSWERS / "openvpn-client.txt").read_text()
ALICE = VpnClient(*("alice", "127.0.0.1:54233", "10.8.0.2", 2845, 2900, "2026-11-26 01:02:07"))


def answer(*texts: str, path: str = "/run/openvpn-server/status-office.log") -> str:
    files = "".join(f"file 1795606830 {path}\n{text}" for text in texts)
    return f"now 1795606850\n{files}end\n"


def test_openvpn_status_files_of_every_version_are_parsed():
    office = OpenVpn("office", 20, Rows([ALICE]), is_server=True)
    assert openvpn.parse_status(answer(SECOND)) == (office,)
    (third,) = openvpn.parse_status(answer(THIRD))
    later = replace(ALICE, address="127.0.0.1:41367", connected_since="2026-11-26 01:02:13")
    assert third.clients == (later,)
    (first,) = openvpn.parse_status(answer(FIRST))
    (client,) = first.clients
    assert (client.name, client.virtual_address, client.received) == ("alice", "", 2845)
    (client,) = openvpn.parse_status(answer(CLIENT, path="/run/openvpn/tunnel.status"))
    assert client == OpenVpn("tunnel", 20, Rows(), is_server=False)


def test_several_openvpn_status_files_and_none_are_parsed():
    assert len(openvpn.parse_status(answer(SECOND, CLIENT))) == 2
    assert openvpn.parse_status(answer()) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        answer(SECOND).removesuffix("end\n"),
        answer(SECOND.removesuffix("END\n")),
        answer("hello\nEND\n").replace("now 1795606850\n", ""),
        answer(SECOND.replace("2845", "many")),
        answer(SECOND.replace("Common Name,Real", "Name,Real")),
    ],
)
def test_incomplete_or_unknown_openvpn_status_file_is_not_understood(text: str):
    assert not is_understood(lambda: openvpn.parse_status(text))


def test_openvpn_status_is_read_from_a_directory_or_one_file(tmp_path: Path):
    (tmp_path / "status-office.log").write_text(SECOND)
    (tmp_path / "server.pid").write_text("1\n")

    def read(path: Path) -> list[OpenVpn]:
        script = next(rule.script for rule in openvpn.SUDO)
        assert script is not None
        words = ["sh", "-c", script.text, "keyturn", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return [*openvpn.parse_status(done.stdout)]

    (office,) = read(tmp_path)
    assert (office.name, office.clients, office.age in range(60)) == ("office", (ALICE,), True)
    assert read(tmp_path / "status-office.log")[0].clients == (ALICE,)
    assert read(tmp_path / "nowhere") == []
