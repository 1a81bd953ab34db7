from dataclasses import replace

import pytest
from pydantic import ValidationError

from bot.model import request_form
from connectors import pingdom
from connectors.csf import Firewall
from connectors.errors import UnreachableError
from connectors.pingdom import ProbeFeed
from connectors.probation import ProbationStatus
from runbooks import Report
from runbooks.csf_pingdom_show import ProbeState, ShowPingdom
from tests.runbooks.firewall import ALL, build_firewall, build_firewall_fleet, probes

SHOW = ShowPingdom.model_validate({"host": "web1"})


def report(state: Firewall, feed: ProbeFeed | None = None) -> Report:
    return SHOW.report(ProbeState(state, feed or probes()))


def test_pingdom_show_of_a_host_that_allows_all_probes_is_healthy():
    seen = report(build_firewall(ALL))
    assert seen.summary == "web1 allows 140 of 140 addresses of Pingdom's probes"
    assert seen.healthy
    assert seen.table is None


def test_pingdom_show_reports_a_firewall_that_is_off():
    seen = report(build_firewall(ALL, in_force=[], loaded=()))
    assert seen.summary == "The firewall of web1 is off: csf's rules are not loaded"
    assert not seen.healthy
    assert "not loaded into iptables and ip6tables, so nothing is blocked" in seen.findings[0]
    assert "start=firewall" in seen.findings[0]
    assert not any("are not up to date" in finding for finding in seen.findings)


def test_pingdom_show_lists_each_address_that_differs():
    seen = report(build_firewall([*ALL[1:], "5.173.1.1"], in_force=ALL[2:]))
    assert seen.summary == "web1 allows 138 of 140 addresses of Pingdom's probes"
    assert seen.findings == ["3 addresses are not up to date: request csf pingdom refresh web1"]
    assert not seen.healthy
    assert seen.table
    assert list(seen.table.rows) == [
        (ALL[0], "active", "missing", "not allowed"),
        (ALL[1], "active", "listed", "not allowed"),
        ("5.173.1.1", "not a probe", "listed", "not allowed"),
    ]


def test_pingdom_show_names_an_invalid_feed_item_without_a_difference():
    odd = replace(
        probes(ALL[1:]),
        skip_reasons=["probe 140 holds '5.172'"],
        unreadable_versions=frozenset({4}),
    )
    seen = report(build_firewall(ALL), odd)
    assert seen.findings == ["skipped in Pingdom's feed: probe 140 holds '5.172'"]
    assert seen.table is None


def test_pingdom_show_lists_a_probe_that_is_allowed_only_by_hand():
    seen = report(build_firewall(ALL[1:], in_force=ALL))
    assert seen.summary == "web1 allows 140 of 140 addresses of Pingdom's probes"
    assert seen.table
    assert list(seen.table.rows) == [(ALL[0], "active", "missing", "allowed")]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (replace(build_firewall(ALL), is_enabled=False), "csf is disabled"),
        (build_firewall(ALL, settings={"TESTING": "1"}), "TESTING mode"),
        (
            replace(build_firewall(ALL), is_included=False),
            "csf.allow lacks the line “Include /etc/csf",
        ),
        (build_firewall(ALL, settings={"GLOBAL_ALLOW": "https://example.com/a"}), "GLOBAL_ALLOW"),
        (replace(build_firewall(ALL), common_domains=frozenset({"example.com"})), "commondomains"),
        (build_firewall(ALL, allow={"0.0.0.0/0": "everything"}), "allows everyone"),
    ],
)
def test_pingdom_show_reports_csf_that_is_not_ready(state: Firewall, words: str):
    seen = report(state)
    assert len(seen.findings) == 1
    assert words in seen.findings[0]
    assert not seen.healthy


def test_cpanel_with_pingdom_in_its_common_domains_is_healthy():
    kept = replace(build_firewall(ALL), common_domains=frozenset({"example.com", " Pingdom.com"}))
    assert report(kept).healthy


def test_pingdom_show_reports_a_list_with_lines_by_hand():
    strange = replace(build_firewall(ALL), own_list="8.8.8.8 # by hand, Jo\n")
    seen = report(strange)
    assert "Move it to csf.allow" in seen.findings[0]
    assert seen.summary.startswith("web1 allows 140 of 140")


def test_pingdom_show_reads_feed_firewall_and_probation():
    reading = SHOW.read(build_firewall_fleet().run_query)
    assert SHOW.report(reading).summary == "web1 allows 1 of 140 addresses of Pingdom's probes"
    armed = replace(reading, probation=ProbationStatus(armed="0123456789abcdef", seconds_left=87))
    assert "are on probation: in 87 s the host restores" in SHOW.report(armed).findings[-1]


def test_firewall_is_reported_when_the_feed_cannot_be_read():
    fleet = build_firewall_fleet()
    fleet.script("web1", pingdom.query_feed().command, UnreachableError("the feed is down"))
    reading = SHOW.read(fleet.run_query)
    seen = SHOW.report(reading)
    assert seen.summary == "The addresses of Pingdom's probes on web1 were not compared"
    assert seen.findings[0] == "Pingdom's feed could not be read: the feed is down"
    assert not seen.healthy
    off = replace(reading, firewall=replace(reading.firewall, loaded_tables=frozenset()))
    seen = SHOW.report(off)
    assert seen.summary.startswith("The firewall of web1 is off")
    assert "Pingdom's feed could not be read: the feed is down" in seen.findings


def test_pingdom_show_is_parsed_as_its_usage_shows():
    assert request_form.format_usage(ShowPingdom) == "csf pingdom show HOST"
    assert request_form.parse_request(ShowPingdom, ["web1"]) == SHOW


def test_pingdom_show_refuses_other_fields():
    with pytest.raises(ValidationError):
        ShowPingdom.model_validate({"host": "web1", "url": "https://example.com"})
