"""Parsers of the kernel's NFS server: threads and clients, in the format of its source code."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from connectors import nfsd
from connectors.errors import ParseError
from connectors.nfsd import NfsClient
from tests.connectors.understanding import is_understood

FOR_ROOT = (nfsd.query_clients(), nfsd.set_threads(1), nfsd.set_threads(8192))
NEW = """\
client 7 3
clientid: 0xe83c2f1b65a0c1d2
address: "192.0.2.10:719"
status: courtesy
seconds from last renew: 4021
name: "Linux NFSv4.2 web1"
minor version: 2
Implementation domain: "kernel.org"
Implementation name: "Linux 6.1.0 \\x0a client 9 9"
Implementation time: [0, 0]
callback state: DOWN
callback address: "192.0.2.10:0"
"""
OLD = """\
client 12 0
clientid: 0xe83c2f1b65a0c1d3
address: "[2001:db8::7]:945"
name: "Linux NFSv4.1 web2"
minor version: 1
"""


def test_nfs_clients_of_old_and_new_kernels_are_parsed():
    assert [*nfsd.parse_clients(f"{NEW}{OLD}end\n")] == [
        NfsClient(
            *("192.0.2.10", "Linux NFSv4.2 web1", "4.2", "courtesy", "DOWN"),
            idle_seconds=4021,
            opens=3,
        ),
        NfsClient("2001:db8::7", "Linux NFSv4.1 web2", "4.1", "", "", None, 0),
    ]
    assert [*nfsd.parse_clients("end\n")] == []


@pytest.mark.parametrize("answer", ["", NEW, "clientid: 0x1\nend\n", "client 1 2\nname: x\nend\n"])
def test_incomplete_list_of_nfs_clients_is_not_understood(answer: str):
    assert not is_understood(lambda: nfsd.parse_clients(answer))


def test_nfs_connections_are_parsed_as_client_addresses():
    answer = (
        "0 0 192.0.2.1:2049 192.0.2.10:719\n"
        "0 36 [::ffff:192.0.2.1]:2049 [::ffff:192.0.2.11]:801\n"
        "0 0 [2001:db8::1]:2049 [2001:db8::7]:945\n"
    )
    assert [*nfsd.parse_connections(answer)] == ["192.0.2.10", "192.0.2.11", "2001:db8::7"]
    assert not is_understood(lambda: nfsd.parse_connections("Error: no such filter\n"))


def test_nfsd_threads_are_parsed_as_a_number():
    assert nfsd.parse_threads("8\n") == 8
    with pytest.raises(ParseError):
        nfsd.parse_threads("")


def test_nfs_clients_are_read_from_their_proc_directories(tmp_path: Path):
    script = nfsd.SUDO[0].script
    assert script is not None
    there = replace(script, code=script.code.replace("/proc/fs/nfsd/clients", str(tmp_path)))

    def read() -> str:
        words = ["sh", "-c", there.text, "keyturn"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert [*nfsd.parse_clients(read())] == []
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "info").write_text(OLD.partition("\n")[2])
    (tmp_path / "12" / "states").write_text("- 0x1: { type: open }\n- 0x2: { type: deleg }\n")
    (client,) = nfsd.parse_clients(read())
    assert (client.address, client.opens) == ("2001:db8::7", 2)
