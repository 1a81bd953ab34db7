from connectors.switch import Vlan
from tests.runbooks.declared import load_check
from tests.runbooks.network import build_network_fleet, recorded

SwitchVlans = load_check("switch vlan")

LOOK = SwitchVlans.model_validate({"host": "sw1"})


def test_switch_vlan_leaves_out_unsupported_default_vlans():
    cisco = build_network_fleet(
        {("sw1", "show vlan"): recorded("cisco-vlan")}, platforms={"sw1": "cisco_ios"}
    )
    report = LOOK.report(LOOK.read(cisco.run_query))
    assert (report.summary, report.healthy) == ("sw1 has 4 VLANs", True)
    assert report.table is not None
    assert [row[0] for row in report.table.rows] == ["1", "10", "50", "60"]
    assert report.table.rows[1] == ("10", "Management", "active", "none")


def test_switch_vlan_counts_ports_beyond_the_listed_ones():
    ports = tuple(f"Gi0/{number}" for number in range(1, 16))
    report = LOOK.report((Vlan(7, "guests", "active", ports),))
    assert report.summary == "sw1 has 1 VLAN"
    assert report.table is not None
    assert report.table.rows[0][3].endswith("Gi0/12 and 3 more")


def test_suspended_vlan_is_a_finding():
    report = LOOK.report((Vlan(7, "guests", "suspended", ()),))
    assert list(report.findings) == ["VLAN 7 (guests) is suspended: its ports carry no traffic"]
    assert not report.healthy
