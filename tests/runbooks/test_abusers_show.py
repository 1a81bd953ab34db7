from collections.abc import Mapping

import pytest

from connectors import haproxy, haproxy_limits
from connectors.errors import CommandError
from runbooks import Refused, Report
from runbooks.abusers_show import ShowAbusers
from tests.connectors.test_haproxy import recorded
from tests.runbooks.balancer import (
    UNREADABLE,
    build_balancer_fleet,
    build_table_output,
    get_sent_lines,
)
from tests.scripted_fleet import Replies

SHOW = ShowAbusers.model_validate({"host": "lb1"})
MARKED = "203.0.113.9 use=0 exp=578000 gpc0=1"
FAST = "203.0.113.9 use=0 exp=98000 conn_rate(100000)=43 bytes_out_rate(60000)=9"
SLOW = "203.0.113.9 use=0 exp=98000 conn_rate(100000)=3 bytes_out_rate(60000)=9"
ASK_MARKED = "show table http data.gpc0 ge 1"
ASK_WWW = "show table www key 203.0.113.9"


def make_report(answers: Mapping[str, Replies], *, config: Replies | None = None) -> Report:
    fleet = build_balancer_fleet(answers)
    if config is not None:
        fleet.script("lb1", haproxy_limits.query_limits().command, config)
    return SHOW.report(SHOW.read(fleet.run_query))


def test_abusers_show_reports_blocked_clients_with_time_left_and_reason():
    report = make_report(
        {ASK_MARKED: build_table_output("http", MARKED), ASK_WWW: build_table_output("www", FAST)}
    )
    assert report.healthy
    assert report.summary == "1 client is blocked in http on lb1"
    assert report.findings == [
        "203.0.113.9 is blocked for 9 min 38 s more: 43 connections in 100 s at www (limit 42)"
    ]
    assert report.table is not None
    assert report.table.rows == [
        (
            "203.0.113.9",
            "for 9 min 38 s more",
            "blocked again",
            "gpc0 1",
            "www: 43 connections in 100 s, 9 bytes out in 60 s",
        )
    ]


def test_abusers_show_reports_how_often_a_client_was_counted():
    often = MARKED.replace("gpc0=1", "gpc0=57")
    report = make_report(
        {ASK_MARKED: build_table_output("http", often), ASK_WWW: build_table_output("www", SLOW)}
    )
    assert report.findings[0].startswith(
        "203.0.113.9 is blocked for 9 min 38 s more, counted 57 times: it is below all limits now"
    )
    assert report.table is not None
    assert report.table.rows[0][2] == "stays unblocked"


def test_abusers_show_names_peers_with_a_copy_of_the_table():
    fleet = build_balancer_fleet(
        {ASK_MARKED: build_table_output("http", MARKED), ASK_WWW: build_table_output("www", SLOW)}
    )
    fleet.script("lb1", haproxy.query_peers().command, recorded("2.6-peers"))
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.findings[-1].startswith("lb2 has a copy of http")


def test_abusers_show_without_marked_clients_has_no_findings():
    report = make_report({ASK_MARKED: build_table_output("http")})
    assert (report.summary, report.findings) == ("No client is marked in http on lb1", ())


def test_abusers_show_reports_a_blocked_client_that_is_below_all_limits():
    report = make_report(
        {ASK_MARKED: build_table_output("http", MARKED), ASK_WWW: build_table_output("www", SLOW)}
    )
    assert report.findings == [
        "203.0.113.9 is blocked for 9 min 38 s more: it is below all limits now "
        "(3 connections in 100 s at www, 9 bytes out in 60 s at www)"
    ]


def test_abusers_show_reports_a_client_that_no_other_table_has():
    report = make_report({ASK_MARKED: build_table_output("http", MARKED), ASK_WWW: "\n"})
    assert report.findings == [
        "203.0.113.9 is blocked for 9 min 38 s more: it is below all limits now"
    ]


def test_abusers_show_reports_rates_when_the_configuration_is_unreadable():
    report = make_report(
        {ASK_MARKED: build_table_output("http", MARKED), ASK_WWW: build_table_output("www", FAST)},
        config=UNREADABLE,
    )
    first, second = report.findings
    assert first == (
        "203.0.113.9 is marked for 9 min 38 s more: "
        "43 connections in 100 s at www, 9 bytes out in 60 s at www"
    )
    assert second.startswith("The limits could not be read: the login cannot read HAProxy's conf")


def test_abusers_show_reports_a_client_without_limits_and_rates():
    report = make_report(
        {ASK_MARKED: build_table_output("http", MARKED), ASK_WWW: "\n"}, config=UNREADABLE
    )
    assert report.findings[0].endswith("more: no table has rates for it")


def test_abusers_show_reports_a_mark_that_no_condition_uses():
    report = make_report(
        {ASK_MARKED: build_table_output("http", MARKED), ASK_WWW: "\n"}, config="backend www\n"
    )
    assert report.findings[0].startswith("203.0.113.9 is marked for")
    assert report.findings[1].startswith("No condition in the configuration uses gpc0 of http")


def test_abusers_show_counts_a_mark_from_the_limit_of_the_configuration():
    config = "backend www\n acl abuser src_get_gpc0(http) gt 4\n"
    report = make_report(
        {"show table http data.gpc0 ge 5": build_table_output("http")}, config=config
    )
    assert report.summary == "No client is marked in http on lb1"


def test_abusers_show_sorts_clients_above_a_limit_first():
    entries = [
        f"203.0.113.{number} use=0 exp=1000 gpc0={mark}"
        for number, mark in ((1, 9), (2, 5), (3, 7))
    ]
    www = {f"show table www key 203.0.113.{number}": "\n" for number in (1, 3)}
    fast = build_table_output("www", "203.0.113.2 use=0 exp=1 conn_rate(100000)=50")
    report = make_report(
        {
            ASK_MARKED: build_table_output("http", *entries),
            **www,
            "show table www key 203.0.113.2": fast,
        }
    )
    assert [finding.split()[0] for finding in report.findings] == [
        "203.0.113.2",
        "203.0.113.1",
        "203.0.113.3",
    ]


def test_abusers_show_queries_only_the_25_most_marked_clients():
    keys = [f"198.51.100.{number}" for number in range(100)]
    entries = [f"{key} use=0 exp={1000 + place} gpc0=1" for place, key in enumerate(keys)]
    worst = {f"show table www key {key}": "\n" for key in keys[75:]}
    report = make_report({ASK_MARKED: build_table_output("http", *entries), **worst})
    assert report.summary == "100 clients are blocked in http on lb1"
    assert len(report.findings) == 26
    assert report.findings[-1] == "75 more are marked"


def test_abusers_show_filters_marked_clients_itself_for_array_counters():
    array = ShowAbusers.model_validate({"host": "lb1", "mark": "gpc2"})
    fleet = build_balancer_fleet(
        {
            "show table http data.gpc[2] gt 9223372036854775807": "Unknown data type\n\n",
            "show table http": build_table_output(
                "http",
                "203.0.113.9 use=0 exp=1000 gpc0=7 gpc1=0 gpc2=1",
                "203.0.113.8 use=0 exp=1000 gpc0=7 gpc1=0 gpc2=0",
            ),
            ASK_WWW: "\n",
        }
    )
    report = array.report(array.read(fleet.run_query))
    assert report.summary == "1 client is marked in http on lb1"


def test_abusers_show_refuses_a_table_without_the_marking_counter():
    unknown = {
        f"show table www data.{spelling} gt 9223372036854775807": "Unknown data type\n\n"
        for spelling in ("gpc0", "gpc[0]", "gpc")
    }
    fleet = build_balancer_fleet({"show table www": build_table_output("www", FAST), **unknown})
    www = ShowAbusers.model_validate({"host": "lb1", "table": "www"})
    empty = build_balancer_fleet({"show table www": build_table_output("www"), **unknown})
    with pytest.raises(Refused, match=r"www has no gpc0 to mark abusers with"):
        www.read(empty.run_query)
    with pytest.raises(Refused, match=r"www has no gpc0 .*: it has conn_rate, bytes_out_rate"):
        www.read(fleet.run_query)


def test_abusers_show_fails_on_a_socket_that_hides_entries():
    hidden = "# table: http, type: ip, size:9, used:5\n# contents not dumped due to insufficient "
    with pytest.raises(CommandError, match="level operator"):
        make_report({ASK_MARKED: hidden + "privileges\n\n"})


def test_abusers_show_reports_a_missing_table_with_the_tables():
    nowhere = ShowAbusers.model_validate({"host": "lb1", "table": "htp"})
    with pytest.raises(CommandError, match="no table htp; its tables: http, other"):
        nowhere.read(build_balancer_fleet().run_query)


def test_abusers_show_queries_no_other_table_for_string_keys():
    users = ShowAbusers.model_validate({"host": "lb1", "table": "users"})
    head = "# table: users, type: string, size:9, used:1\n"
    entry = "0x1: key=bob\\ smith use=0 exp=1 gpc0=1\n"
    fleet = build_balancer_fleet(
        {
            "show table users data.gpc0 gt 9223372036854775807": head + "\n",
            "show table users data.gpc0 ge 1": head + entry + "\n",
        }
    )
    report = users.report(users.read(fleet.run_query))
    assert report.findings[0].startswith("bob smith is marked for 1 s more")
    assert len(get_sent_lines(fleet)) == 4


@pytest.mark.parametrize("kept", [True, False])
def test_abusers_show_reports_an_empty_table_only_when_it_stores_the_mark(kept: bool):
    array = ShowAbusers.model_validate({"host": "lb1", "mark": "gpc2"})
    answers: dict[str, Replies] = {
        "show table http data.gpc[2] gt 9223372036854775807": "Unknown data type\n\n",
        "show table http data.gpc gt 9223372036854775807": (
            build_table_output("http") if kept else "Unknown data type\n\n"
        ),
        "show table http": build_table_output("http"),
    }
    if kept:
        report = array.report(array.read(build_balancer_fleet(answers).run_query))
        assert report.summary == "No client is marked in http on lb1"
        return
    with pytest.raises(Refused, match="http has no gpc2 to mark abusers with"):
        array.read(build_balancer_fleet(answers).run_query)
