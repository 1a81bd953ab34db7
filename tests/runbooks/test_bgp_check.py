from dataclasses import replace

import pytest

from connectors import bgp
from connectors.bgp import BgpPeer
from runbooks import Report
from tests.connectors.test_bgp import ESTABLISHED, SHUT_DOWN
from tests.runbooks.declared import load_check
from tests.scripted_fleet import ScriptedFleet

CheckBgp = load_check("bgp check")

CHECK = CheckBgp.model_validate({"host": "r1"})
(PEER,) = bgp.parse_peers(ESTABLISHED)


def report(*peers: BgpPeer) -> Report:
    return CHECK.report(peers)


def test_bgp_check_reads_a_linux_router_by_vtysh():
    fleet = ScriptedFleet({("r1", bgp.query_peers().command): ESTABLISHED})
    seen = CHECK.report(CHECK.read(fleet.run_query))
    assert seen.summary == "1 of 1 BGP sessions of r1 are established"
    assert seen.healthy
    assert seen.table
    assert seen.table.rows[0][:4] == ("10.81.0.3", "65003", "default", "IPv4")


@pytest.mark.parametrize(
    ("peer", "finding"),
    [
        (replace(PEER, state="Active"), "is Active for 00:00:01"),
        (replace(PEER, state="Idle", uptime="never"), "is Idle since bgpd started"),
        (replace(PEER, state="Idle", block="PfxCt"), "more prefixes than maximum-prefix allows"),
        (replace(PEER, received=0), "established but sends no prefixes"),
        (replace(PEER, block="Policy"), "is established without a filter in one direction"),
        (replace(PEER, block="Policy", received=0, sent=7), "it received 0 and sent 7. Set a"),
    ],
)
def test_bgp_session_that_is_down_or_sends_no_prefixes_is_a_finding(peer: BgpPeer, finding: str):
    (problem,) = report(peer).findings
    assert problem.startswith("10.81.0.3 (AS 65003, IPv4)")
    assert finding in problem


def test_bgp_session_that_was_shut_down_is_shown_and_no_finding():
    seen = report(*bgp.parse_peers(SHUT_DOWN))
    assert (seen.healthy, seen.summary) == (True, "0 of 1 BGP sessions of r1 are established")
    assert seen.table
    assert seen.table.rows[0][4] == "shut down"


def test_bgp_check_reports_a_router_without_peers():
    assert report().summary == "r1 has no BGP peers"
