import pytest

from connectors.command import Answer
from connectors.errors import CommandError, SetupError
from connectors.switch import SwitchPort
from tests.runbooks.declared import load_check
from tests.runbooks.network import build_network_fleet, recorded

SwitchPorts = load_check("switch ports")

LOOK = SwitchPorts.model_validate({"host": "sw1"})
SHOW = ("sw1", "show interfaces status")


def test_suspended_and_err_disabled_ports_are_findings():
    stopped = ("sw1", "show interfaces status err-disabled")
    cisco = build_network_fleet(
        {
            SHOW: recorded("cisco-interfaces-status"),
            stopped: recorded("cisco-interfaces-err-disabled"),
        },
        platforms={"sw1": "cisco_ios"},
    )
    report = LOOK.report(LOOK.read(cisco.run_query))
    assert report.summary == "sw1 has 6 of 16 ports up, 2 to fix"
    assert list(report.findings) == [
        "Gi1/0/7 (Trunk Example) is suspended: the switch has stopped it",
        "Gi1/0/16 (Multi Space to the) is err-disabled (psecure-violation): find the cause, then "
        "shut it down and enable it, on a Cisco with `switch port enable sw1 Gi1/0/16`",
    ]
    assert not report.healthy
    assert report.table is not None
    assert ("Po1", "up", "trunk", "a-1000", "a-full", "ethchl") in report.table.rows
    cisco.script(*stopped, Answer(1, "% Invalid input detected at '^' marker."))
    report = LOOK.report(LOOK.read(cisco.run_query))
    assert "is err-disabled (reason not shown):" in report.findings[1]


def test_ports_of_a_dell_are_healthy():
    dell = build_network_fleet(
        {SHOW: recorded("dell-interfaces-status")}, platforms={"sw1": "dell_powerconnect"}
    )
    report = LOOK.report(LOOK.read(dell.run_query))
    assert (report.summary, report.healthy) == ("sw1 has 4 of 6 ports up", True)


def test_port_in_half_duplex_is_a_finding():
    report = LOOK.report(
        (SwitchPort("g1", "up", duplex="Half"), SwitchPort("g2", "down", duplex="a-half"))
    )
    assert [finding.split(":")[0] for finding in report.findings] == ["g1 runs in half duplex"]


def test_switch_ports_fails_on_a_switch_without_the_command():
    asked = build_network_fleet(
        {SHOW: Answer(1, "% Invalid input\n")}, platforms={"sw1": "cisco_ios"}
    )
    with pytest.raises(CommandError, match="lacks the feature"):
        LOOK.read(asked.run_query)


def test_switch_ports_refuses_a_host_that_is_no_switch():
    with pytest.raises(SetupError, match="not a network device"):
        LOOK.read(build_network_fleet({}, platforms={"sw1": "linux"}).run_query)
