"""What FRR 8.4 prints of its BGP sessions."""

from pathlib import Path

import pytest

from connectors import bgp
from connectors.bgp import BgpPeer
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "bgp"
ESTABLISHED = (ANSWERS / "established.json").read_text()
SHUT_DOWN = (ANSWERS / "shut-down.json").read_text()
FOR_ROOT = (bgp.query_peers(),)


def test_bgp_session_is_parsed_with_its_prefixes_and_state():
    assert [*bgp.parse_peers(ESTABLISHED)] == [
        BgpPeer(
            *("10.81.0.3", "default", "IPv4", "65003", "Established", "OK", "00:00:01"),
            received=1,
            sent=1,
            drops=0,
        )
    ]
    (shut,) = bgp.parse_peers(SHUT_DOWN)
    assert (shut.state, shut.block, shut.drops) == ("Idle (Admin)", "Admin", 1)


def make_old(answer: str) -> str:
    """Return what FRR 7 prints: no peerState, and another name of the prefixes."""
    older = answer.replace('"pfxRcd"', '"prefixReceivedCount"')
    return "\n".join(line for line in older.splitlines() if "peerState" not in line)


def test_bgp_sessions_of_frr_7_are_parsed():
    assert bgp.parse_peers(make_old(ESTABLISHED)) == bgp.parse_peers(ESTABLISHED)
    assert bgp.parse_peers(make_old(SHUT_DOWN)) == bgp.parse_peers(SHUT_DOWN)
    (full,) = bgp.parse_peers(make_old(SHUT_DOWN).replace("(Admin)", "(PfxCt)"))
    assert full.block == "PfxCt"


def test_as_in_dotted_notation_is_parsed():
    (peer,) = bgp.parse_peers(ESTABLISHED.replace('"remoteAs":65003', '"remoteAs":"1.10"'))
    assert peer.remote_as == "1.10"


def test_router_without_bgp_has_no_peers():
    assert [*bgp.parse_peers("{\n}\n")] == []
    assert [*bgp.parse_peers("% BGP instance not found\n")] == []


@pytest.mark.parametrize(
    "answer", ["", "[]", '{"default": {"ipv4Unicast": {"peers": {"a": {}}}}}', ESTABLISHED[:200]]
)
def test_invalid_bgp_summary_is_not_understood(answer: str):
    assert not is_understood(lambda: bgp.parse_peers(answer))
