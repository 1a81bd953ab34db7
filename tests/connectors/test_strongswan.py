"""strongSwan's tunnels: recorded of strongSwan 5.9.8 without IPsec in its kernel, so that no child
was installed, and after public outputs for those."""

from pathlib import Path

import pytest

from connectors import strongswan
from connectors.strongswan import Connection, Tunnel
from tests.connectors.understanding import is_understood

FOR_ROOT = (
    strongswan.query_tunnels(),
    strongswan.query_connections(),
    strongswan.query_old_status(),
)
TUNNELS = (
    "list-sa event {site-b {uniqueid=1 version=2 state=ESTABLISHED local-host=192.0.2.1 "
    "local-port=4500 local-id=C=CH, O=Example, CN=gw remote-host=198.51.100.1 remote-port=4500 "
    "remote-id=CN=x state=CONNECTING initiator=yes established=1866 rekey-time=26451 child-sas "
    "{net-1 {name=net uniqueid=1 reqid=1 state=INSTALLED mode=TUNNEL protocol=ESP bytes-in=588 "
    "packets-in=7 bytes-out=1176 packets-out=14 rekey-time=1206 install-time=1866 "
    "local-ts=[10.1.0.0/16 10.3.0.0/16] remote-ts=[10.2.0.0/16]}}}}\n"
    "list-sa event {site-c {uniqueid=2 version=2 state=CONNECTING local-host=192.0.2.1 "
    "remote-host=198.51.100.2 child-sas {}}}\n"
    "list-sas reply {}\n"
)
CONNECTIONS = (
    "list-conn event {site-b {local_addrs=[192.0.2.1] remote_addrs=[198.51.100.1] version=IKEv2 "
    "local-1 {class=pre-shared key groups=[]} children {net {mode=TUNNEL local-ts=[10.1.0.0/16] "
    "remote-ts=[10.2.0.0/16]} dmz {mode=TUNNEL} ssh {mode=PASS} leak {mode=DROP}}}}\n"
    "list-conn event {site-c {local_addrs=[%any] remote_addrs=[198.51.100.2] children {}}}\n"
    "list-conn event {people {local_addrs=[%any] remote_addrs=[%any] children {all {}}}}\n"
    "list-conns reply {}\n"
)
ANSWERS = Path(__file__).parent / "answers" / "vpn"
OLD = (ANSWERS / "ipsec-statusall.txt").read_text()
CHILD = """\
      site-b{34}:  INSTALLED, TUNNEL, reqid 9, ESP in UDP SPIs: c46d5d8d_i c688564f_o
      site-b{34}:   10.1.0.0/16 === 10.2.0.0/16
"""


def test_strongswan_tunnels_are_parsed_with_their_traffic():
    assert [*strongswan.parse_tunnels(TUNNELS)] == [
        Tunnel("site-b", "", "ESTABLISHED", "198.51.100.1", 1866),
        Tunnel(
            *("site-b", "net", "INSTALLED", "198.51.100.1", 1866, 588, 1176),
            networks="10.1.0.0/16 10.3.0.0/16 to 10.2.0.0/16",
        ),
        Tunnel("site-c", "", "CONNECTING", "198.51.100.2"),
    ]


def test_strongswan_connections_are_parsed_with_their_children():
    site_b, site_c, people = strongswan.parse_connections(CONNECTIONS)
    assert site_b == Connection("site-b", "198.51.100.1", ["net", "dmz"])
    assert [*site_c.children] == []
    assert [each.waits_for_peers for each in (site_b, site_c, people)] == [False, False, True]
    assert [*strongswan.parse_connections("list-conns reply {}\n")] == []


def test_strongswan_status_of_the_older_ipsec_program_is_parsed():
    connections, tunnels = strongswan.parse_old_status(OLD + CHILD)
    assert [*connections] == [
        Connection("site-b", "10.99.0.1", ["site-b"]),
        Connection("site-a", "10.99.0.2", ["site-a"]),
        Connection("people", "%any", ["people"]),
    ]
    assert [*tunnels] == [
        Tunnel("site-a", "", "ESTABLISHED", "10.99.0.2"),
        Tunnel("site-b", "", "ESTABLISHED", "10.99.0.1"),
        Tunnel("site-b", "site-b", "INSTALLED", ""),
    ]


def test_recorded_swanctl_answers_are_parsed():
    site_b, site_a, people = strongswan.parse_connections(
        (ANSWERS / "swanctl-conns.txt").read_text()
    )
    assert site_b == Connection("site-b", "10.99.0.2", ["net"])
    assert (site_a.children, people.waits_for_peers) == (["back"], True)
    assert [*strongswan.parse_tunnels((ANSWERS / "swanctl-sas.txt").read_text())] == [
        Tunnel("site-a", "", "ESTABLISHED", "10.99.0.1", 0),
        Tunnel("site-b", "", "ESTABLISHED", "10.99.0.2", 0),
    ]


@pytest.mark.parametrize(
    "answer", ["", "hello", TUNNELS.replace("}}}}", "}}}"), TUNNELS.replace("}}}}", "}}}}}}")]
)
def test_incomplete_strongswan_answer_is_not_understood(answer: str):
    assert not is_understood(lambda: strongswan.parse_tunnels(answer))
    assert not is_understood(lambda: strongswan.parse_old_status(answer))
