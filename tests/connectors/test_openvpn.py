"""OpenVPN's status files, after those that OpenVPN 2.4 and 2.6 write."""

from dataclasses import replace

import pytest

from connectors import openvpn
from connectors.errors import ParseError
from connectors.openvpn import OpenVpn, VpnClient

FOR_ROOT = (openvpn.query_status(),)
SECOND = """\
TITLE,OpenVPN 2.6.12 x86_64-pc-linux-gnu [SSL (OpenSSL)]
TIME,2026-11-25 11:40:30,1795606830
HEADER,CLIENT_LIST,Common Name,Real Address,Virtual Address,Virtual IPv6 Address,Bytes Received,\
Bytes Sent,Connected Since,Connected Since (time_t),Username,Client ID,Peer ID,Data Channel Cipher
CLIENT_LIST,alice,198.51.100.44:51514,10.8.0.6,,48213,91022,2026-11-25 10:15:02,1795601702,UNDEF,\
3,0,AES-256-GCM
HEADER,ROUTING_TABLE,Virtual Address,Common Name,Real Address,Last Ref,Last Ref (time_t)
ROUTING_TABLE,10.8.0.6,alice,198.51.100.44:51514,2026-11-25 11:40:11,1795606811
GLOBAL_STATS,Max bcast/mcast queue length,0
END
"""
FIRST = """\
OpenVPN CLIENT LIST
Updated,2026-11-25 11:40:30
Common Name,Real Address,Bytes Received,Bytes Sent,Connected Since
alice,198.51.100.44:51514,48213,91022,2026-11-25 10:15:02
ROUTING TABLE
Virtual Address,Common Name,Real Address,Last Ref
10.8.0.6,alice,198.51.100.44:51514,2026-11-25 11:40:11
GLOBAL STATS
Max bcast/mcast queue length,0
END
"""
CLIENT = "OpenVPN STATISTICS\nUpdated,2026-11-25 11:40:30\nTUN/TAP read bytes,153789941\nEND\n"
ALICE = VpnClient(
    *("alice", "198.51.100.44:51514", "10.8.0.6", 48213, 91022, "2026-11-25 10:15:02")
)


def answer(*texts: str, path: str = "/run/openvpn-server/status-office.log") -> str:
    files = "".join(f"file 1795606830 {path}\n{text}" for text in texts)
    return f"now 1795606850\n{files}end\n"


def test_every_version_of_a_status_file_is_understood():
    office = OpenVpn("office", 20, [ALICE], is_server=True)
    assert openvpn.parse_status(answer(SECOND)) == [office]
    assert openvpn.parse_status(answer(SECOND.replace(",", "\t"))) == [office]
    (old,) = openvpn.parse_status(answer(FIRST))
    assert old == replace(office, clients=[replace(ALICE, virtual_address="")])
    (client,) = openvpn.parse_status(answer(CLIENT, path="/run/openvpn/tunnel.status"))
    assert client == OpenVpn("tunnel", 20, (), is_server=False)


def test_several_files_and_none_are_told_apart():
    assert len(openvpn.parse_status(answer(SECOND, CLIENT))) == 2
    assert openvpn.parse_status(answer()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        answer(SECOND).removesuffix("end\n"),
        answer(SECOND.removesuffix("END\n")),
        answer("hello\nEND\n").replace("now 1795606850\n", ""),
        answer(SECOND.replace("48213", "many")),
        answer(SECOND.replace("Common Name,Real", "Name,Real")),
    ],
)
def test_a_file_that_is_not_whole_or_not_known_is_an_error(text: str):
    with pytest.raises((ParseError, ValueError)):
        openvpn.parse_status(text)
