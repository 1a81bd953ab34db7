from collections.abc import Mapping
from dataclasses import replace

import pytest
from pydantic import ValidationError

from bot.model import request_form
from connectors.command import Answer, QueryCommand
from connectors.errors import CommandError, HostError, UnreachableError
from connectors.gateway import Gateway, TrackedObject
from runbooks import Refused
from runbooks.hsrp_check import HsrpCheck
from tests.runbooks.network import build_network_fleet, recorded
from tests.scripted_fleet import Replies

ONE = HsrpCheck.model_validate({"host": "r1"})
TWO = HsrpCheck.model_validate({"host": "r1", "other": "r2"})
CISCO, FRR = {"r1": "cisco_ios", "r2": "cisco_ios"}, {"r1": "frr", "r2": "frr"}
STANDBY, VRRP, JSON = "show standby", "show vrrp brief", "show vrrp json"

UPLINK = (TrackedObject("object 1", is_up=True),)
WAN = Gateway(
    *("HSRP", "Gi0/0", 1, "198.51.100.1", "Active", 110),
    "198.51.100.3",
    UPLINK,
    is_preempting=True,
)
LAN = replace(WAN, interface="Vlan10", group=10, address="10.0.0.1", standby_router="10.0.0.3")


def make_standby(group: Gateway) -> Gateway:
    return replace(group, state="Standby", priority=100, standby_router="local")


def findings(pair: Mapping[str, tuple[Gateway, ...]]) -> list[str]:
    report = TWO.report(pair)
    assert report.healthy is not bool(report.findings)
    return list(report.findings)


def test_hsrp_pair_with_tracking_and_preemption_has_no_findings():
    pair = {"r1": (WAN, LAN), "r2": (make_standby(WAN), make_standby(LAN))}
    report = TWO.report(pair)
    assert report.summary == "2 groups on r1 and r2: all healthy"
    assert findings(pair) == []
    assert report.table is not None
    assert report.table.rows[0] == (
        *("r1", "Gi0/0", "HSRP 1", "198.51.100.1", "Active", "110", "object 1"),
    )


def test_hsrp_groups_active_on_different_routers_are_a_finding():
    (finding,) = findings({"r1": (WAN, make_standby(LAN)), "r2": (make_standby(WAN), LAN)})
    assert finding.startswith(
        "r1 is active for Gi0/0 group 1 (198.51.100.1); "
        "r2 is active for Vlan10 group 10 (10.0.0.1): "
    )
    assert "HSRP is not for WANs" in finding


def test_hsrp_router_that_is_active_for_only_some_groups_is_a_finding():
    report = ONE.report({"r1": (WAN, make_standby(LAN))})
    (finding,) = report.findings
    assert finding.startswith(
        "r1 is active for Gi0/0 group 1 (198.51.100.1) and not for Vlan10 group 10"
    )


def test_hsrp_group_without_tracking_is_a_finding():
    (finding,) = findings({"r1": (replace(LAN, tracked_objects=()),), "r2": (make_standby(LAN),)})
    assert finding.startswith("r1: Vlan10 group 10 (10.0.0.1) tracks nothing: ")


@pytest.mark.parametrize(
    ("track", "words"),
    [
        (TrackedObject("object 1", is_up=False), "tracks object 1, which is down"),
        (
            TrackedObject("object 1", is_up=False, is_known=False),
            "which this router does not have",
        ),
    ],
)
def test_hsrp_tracked_object_that_is_down_or_missing_is_a_finding(
    track: TrackedObject, words: str
):
    (finding,) = findings(
        {"r1": (replace(LAN, tracked_objects=(track,)),), "r2": (make_standby(LAN),)}
    )
    assert words in finding


def test_hsrp_router_without_preemption_is_a_finding():
    (finding,) = findings({"r1": (LAN,), "r2": (replace(make_standby(LAN), is_preempting=False),)})
    assert finding.startswith("r2: Vlan10 group 10 (10.0.0.1) does not preempt")


def test_hsrp_group_without_a_standby_is_a_finding():
    report = ONE.report({"r1": (replace(LAN, standby_router="unknown"),)})
    assert "has no standby" in report.findings[0]


def test_hsrp_group_that_only_one_router_has_is_a_finding():
    assert findings({"r1": (WAN, LAN), "r2": (make_standby(WAN),)}) == [
        "r2 does not participate in Vlan10 group 10 (10.0.0.1): r1 has no standby"
    ]


def test_hsrp_group_without_an_active_router_is_a_finding():
    stuck = replace(LAN, state="Init")
    problems = findings({"r1": (stuck,), "r2": (stuck,)})
    assert [each for each in problems if each.startswith("no router is active for")]
    assert len([each for each in problems if "does not participate" in each]) == 2


def test_hsrp_check_reports_findings_of_recorded_cisco_routers():
    routers = build_network_fleet({("r1", STANDBY): recorded("cisco-standby")}, platforms=CISCO)
    report = ONE.report(ONE.read(routers.run_query))
    assert report.summary == "4 groups on r1: 4 to fix"
    first = [finding.split(":", 2)[1].strip()[:40] for finding in report.findings]
    assert first[0].startswith("Vlan703 group 4 (172.23.40.9) has no sta")
    alone = build_network_fleet(
        {("r1", STANDBY): recorded("cisco-standby-alone")}, platforms=CISCO
    )
    problems = ONE.report(ONE.read(alone.run_query)).findings
    assert len([each for each in problems if "has no standby" in each]) == 2
    assert len([each for each in problems if "tracks nothing" in each]) == 2


def test_vrrp_split_brain_of_two_routers_is_a_finding():
    cut: dict[tuple[str, str | QueryCommand], Replies] = {
        ("r1", JSON): recorded("frr-8.4-vrrp-cut-1"),
        ("r2", JSON): recorded("frr-8.4-vrrp-cut-2"),
    }
    (finding,) = TWO.report(TWO.read(build_network_fleet(cut, platforms=FRR).run_query)).findings
    assert finding.startswith("r1 and r2 are both Master for ve1 group 5")
    whole: dict[tuple[str, str | QueryCommand], Replies] = {
        ("r1", JSON): recorded("frr-8.4-vrrp-master"),
        ("r2", JSON): recorded("frr-8.4-vrrp-backup"),
    }
    assert TWO.report(TWO.read(build_network_fleet(whole, platforms=FRR).run_query)).healthy


def test_hsrp_check_queries_vrrp_on_a_cisco_without_hsrp():
    routers = build_network_fleet(
        {("r1", STANDBY): "", ("r1", VRRP): recorded("cisco-vrrp-brief")}, platforms=CISCO
    )
    report = ONE.report(ONE.read(routers.run_query))
    assert (
        "r1: Fa0/1.4 group 4 (10.0.4.1) is in state Init and does not participate"
        in report.findings
    )


def test_hsrp_check_reports_a_router_without_groups():
    routers = build_network_fleet(
        {("r1", STANDBY): "", ("r1", VRRP): Answer(1, "% Invalid input\n")}, platforms=CISCO
    )
    report = ONE.report(ONE.read(routers.run_query))
    assert not report.healthy
    assert report.summary == "No HSRP or VRRP group on r1"


def test_hsrp_check_fails_when_vrrp_cannot_be_read():
    refused = Answer(1, "% Authorization failed.\n")
    routers = build_network_fleet({("r1", STANDBY): "", ("r1", VRRP): refused}, platforms=CISCO)
    with pytest.raises(CommandError, match="the login may not read this"):
        ONE.read(routers.run_query)


def test_hsrp_check_fails_on_a_router_without_the_command():
    routers = build_network_fleet(
        {("r1", STANDBY): Answer(1, "% Invalid input\n")}, platforms=CISCO
    )
    with pytest.raises(CommandError, match="lacks the feature"):
        ONE.read(routers.run_query)


def test_hsrp_check_refuses_the_same_router_twice():
    same = HsrpCheck.model_validate({"host": "r1", "other": "r1"})
    with pytest.raises(Refused, match="is given twice"):
        same.read(build_network_fleet({}, platforms=CISCO).run_query)


def test_hsrp_check_is_parsed_with_one_router_or_two():
    assert request_form.parse_request(HsrpCheck, ["r1"]) == ONE
    assert request_form.parse_request(HsrpCheck, ["r1", "r2"]) == TWO
    blank = request_form.list_form_fields(HsrpCheck)[1]
    assert (blank.kind, blank.required, blank.tag) == ("host", False, "router")


@pytest.mark.parametrize(
    "name",
    [
        *("r2; reload", "r2\n", "R2", "-r2", "r2.", "r 2", "../r2", "r2\x00", "r2\u200b", "ｒ2"),
        *("a" * 64, "r2|x", "$r2"),
    ],
)
def test_hsrp_check_refuses_an_invalid_second_router(name: str):
    with pytest.raises(ValidationError):
        HsrpCheck.model_validate({"host": "r1", "other": name})


@pytest.mark.parametrize("lost", ["r1", "r2"])
def test_hsrp_check_reports_one_router_when_the_other_cannot_be_read(lost: str):
    (other,) = {"r1", "r2"} - {lost}
    reading: dict[str, tuple[Gateway, ...] | HostError] = {"r1": (WAN, LAN), "r2": (WAN, LAN)}
    reading[lost] = UnreachableError("no route")
    report = TWO.report(reading)
    assert report.summary == f"2 groups on {other}: 1 to fix"
    assert report.findings == [
        f"{lost} could not be read, so the two sides were not compared: no route"
    ]
