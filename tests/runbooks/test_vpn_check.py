import pytest

from connectors import openvpn, programs, strongswan
from connectors.command import Answer
from connectors.errors import CommandError
from connectors.openvpn import OpenVpn
from connectors.rows import Rows
from connectors.strongswan import Connection
from runbooks.vpn_check import CheckVpn, VpnState
from tests.connectors.test_openvpn import SECOND, answer
from tests.connectors.test_strongswan import CHILD, CONNECTIONS, OLD, TUNNELS
from tests.scripted_fleet import ScriptedFleet

CHECK = CheckVpn.model_validate({"host": "vpn1"})
INSTALLED = programs.query_installed("openvpn", "swanctl", "ipsec").command
NO_DAEMON = Answer(2, "", "connecting to 'unix:///var/run/charon.vici' failed: No such file")


def fleet(installed: str) -> ScriptedFleet:
    return ScriptedFleet(
        {
            ("vpn1", INSTALLED): installed,
            ("vpn1", openvpn.query_status().command): answer(SECOND),
            ("vpn1", strongswan.query_connections().command): CONNECTIONS,
            ("vpn1", strongswan.query_tunnels().command): TUNNELS,
            ("vpn1", strongswan.query_old_status().command): OLD + CHILD,
        }
    )


def test_vpn_clients_and_tunnels_are_listed_and_down_tunnels_are_findings():
    report = CHECK.report(CHECK.read(fleet("openvpn\nswanctl\n").run_query))
    assert report.summary == ("vpn1 has 1 OpenVPN client and 1 of 2 IPsec connections established")
    assert list(report.findings) == [
        "IPsec site-b: the tunnel dmz is not installed",
        "IPsec site-c to 198.51.100.2 is not established (CONNECTING)",
    ]
    assert report.table
    assert [row[:2] for row in report.table.rows][:2] == [
        ("OpenVPN office", "alice 127.0.0.1:54233"),
        ("IPsec site-b", "198.51.100.1"),
    ]
    assert report.table.rows[2][2:] == (
        *("10.1.0.0/16 10.3.0.0/16 to 10.2.0.0/16", "INSTALLED", "31 min 6 s ago"),
        *("588 B", "1.15 KiB"),
    )


def test_vpn_check_uses_ipsec_where_swanctl_has_no_daemon():
    both = fleet("swanctl\nipsec\n")
    both.script("vpn1", strongswan.query_connections().command, NO_DAEMON)
    report = CHECK.report(CHECK.read(both.run_query))
    assert report.summary == "vpn1 has 2 of 2 IPsec connections established"
    assert list(report.findings) == ["IPsec site-a: the tunnel site-a is not installed"]


def test_openvpn_that_does_not_run_beside_healthy_tunnels_is_noted():
    both = fleet("openvpn\nswanctl\n")
    both.script("vpn1", openvpn.query_status().command, "now 1700000000\nend\n")
    report = CHECK.report(CHECK.read(both.run_query))
    assert report.findings[-1].startswith("OpenVPN is installed and has no status file")
    alone = CHECK.report(CHECK.read(fleet("swanctl\n").run_query))
    assert not any("OpenVPN" in finding for finding in alone.findings)


def test_old_openvpn_status_file_is_a_finding():
    (finding,) = CHECK.report(
        VpnState([OpenVpn("office", 4000, Rows(), is_server=True)], (), ())
    ).findings
    assert finding.startswith("the status of OpenVPN office is 1 h 6 min old")


def test_vpn_check_reports_a_host_without_a_vpn():
    assert CHECK.report(CHECK.read(fleet("").run_query)).summary.startswith("vpn1 has no VPN")
    waiting = VpnState((), [Connection("people", "%any", ["all"])], ())
    assert CHECK.report(waiting).healthy


def test_vpn_check_reports_the_rest_when_one_part_cannot_be_read():
    both = fleet("openvpn\nswanctl\n")
    denied = Answer(1, "", "Permission denied")
    status = openvpn.query_status().command
    both.script("vpn1", status, denied)
    report = CHECK.report(CHECK.read(both.run_query))
    assert report.summary == "vpn1 has 1 of 2 IPsec connections established"
    assert report.findings[-1].startswith("OpenVPN could not be read: ")
    both.script("vpn1", status, answer(SECOND))
    both.script("vpn1", strongswan.query_tunnels().command, denied)
    report = CHECK.report(CHECK.read(both.run_query))
    # Without its tunnels, no connection is called down.
    assert report.summary == "vpn1 has 1 OpenVPN client"
    (finding,) = report.findings
    assert finding.startswith("the tunnels of IPsec could not be read: ")


def test_vpn_check_fails_when_no_part_can_be_read():
    none = fleet("openvpn\n")
    none.script("vpn1", openvpn.query_status().command, Answer(1, "", "Permission denied"))
    with pytest.raises(CommandError, match="Permission denied"):
        CHECK.read(none.run_query)
