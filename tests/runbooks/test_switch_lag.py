import pytest
from pydantic import ValidationError

from bot.model import request_form
from connectors.switch import Lag, LagMember
from runbooks import Refused
from tests.runbooks.declared import load_check
from tests.runbooks.network import build_network_fleet, recorded

SwitchLag = load_check("switch lag")
ALL = SwitchLag.model_validate({"host": "sw1"})
SHOW = ("sw1", "show etherchannel summary")


def cisco():
    return build_network_fleet(
        {SHOW: recorded("cisco-etherchannel")}, platforms={"sw1": "cisco_ios"}
    )


def test_switch_lag_lists_every_lag_with_its_members():
    report = ALL.report(ALL.read(cisco().run_query))
    assert report.summary == "sw1 has 4 of 6 link aggregations healthy"
    assert list(report.findings) == [
        "Po13 has only one bundled port, Te2/8: no redundancy",
        "Po14 has only one bundled port, Te1/8: no redundancy",
    ]
    assert report.table is not None
    assert report.table.rows[1] == ("Po3", "up", "LACP", "Te4/2 bundled, Te2/2 bundled")


def test_switch_lag_finds_a_lag_by_each_of_its_names():
    for name in ("port-channel1", "Po1", "1"):
        one = SwitchLag.model_validate({"host": "sw1", "name": name})
        report = one.report(one.read(cisco().run_query))
        assert (report.summary, report.healthy) == (
            "sw1 has 1 of 1 link aggregations healthy",
            True,
        )


def test_switch_lag_refuses_a_missing_lag_and_names_the_others():
    other = SwitchLag.model_validate({"host": "sw1", "name": "Po9"})
    with pytest.raises(Refused, match="sw1 has no Po9: it has Po1, Po3, Po7, Po13, Po14, Po51"):
        other.read(cisco().run_query)


def test_suspended_lag_member_is_a_finding():
    lag = Lag(
        "Po1", True, "LACP", (LagMember("Gi0/1", "bundled"), LagMember("Gi0/2", "suspended"))
    )
    report = ALL.report((lag,))
    assert not report.healthy
    assert "Gi0/2 is not bundled into Po1: suspended" in report.findings


def test_lag_members_that_a_switch_does_not_show_are_unknown():
    report = ALL.report((Lag("ch1", True, "", None),))
    assert report.table is not None
    assert list(report.table.rows) == [("ch1", "up", "unknown", "unknown")]
    assert report.summary == "sw1 has 1 of 1 link aggregations up, with unknown members"
    assert list(report.findings) == [
        "this switch does not show the members of ch1: they were not checked"
    ]
    down = ALL.report((Lag("ch1", True, "", None), Lag("ch2", False, "", None)))
    assert down.summary == "sw1 has 1 of 2 link aggregations up, with unknown members"
    assert (down.healthy, down.findings[0]) == (False, "ch2 is down")


def test_lag_without_a_bundled_port_is_a_finding():
    report = ALL.report((Lag("Po1", True, "LACP", ()), Lag("ch1", True, "", None)))
    assert report.summary == ("sw1 has 0 of 1 link aggregations healthy, 1 with unknown members")
    assert report.findings[0] == "Po1 has no bundled port: it carries no traffic"
    assert ALL.report(()).summary == "sw1 has no link aggregation in use"


@pytest.mark.parametrize(
    "name",
    [
        *("Po1; reload", "Po1\nreload", "Po1 | redirect x", "-1", "Po1?", "Po", "Po 1 2", "../1"),
        *("Po1\x1a", "Po1\u200b", "$(id)", "Po12345", "P" * 40 + "1", "１"),
    ],
)
def test_invalid_lag_name_is_refused(name: str):
    with pytest.raises(ValidationError):
        SwitchLag.model_validate({"host": "sw1", "name": name})


def test_switch_lag_is_parsed_with_and_without_a_name():
    assert request_form.parse_request(SwitchLag, ["sw1"]) == ALL
    typed = request_form.parse_request(SwitchLag, ["sw1", "port-channel1"])
    assert typed == SwitchLag.model_validate({"host": "sw1", "name": "port-channel1"})
