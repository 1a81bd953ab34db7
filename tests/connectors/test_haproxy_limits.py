"""Limits in HAProxy's configuration, and which of them a client exceeds."""

import subprocess
from pathlib import Path

import pytest

from connectors import haproxy_limits
from connectors.command import Answer, Query, Shell, find_failure
from connectors.haproxy_limits import TableLimit, TableLimits, parse_limits
from connectors.stick_table import Rate, TableEntry

STORY = Path(__file__).parent / "answers" / "haproxy" / "story.cfg"

FOUND = (
    TableLimit("http", "gpc0", 1, "frontend http"),
    TableLimit("www", "conn_rate", 43, "backend www"),
    TableLimit("www", "bytes_out_rate", 5_000_001, "backend www"),
    TableLimit("per_key", "http_req_rate", 100, "frontend api"),
    TableLimit("per_key", "http_err_rate", 10, "frontend api"),
    TableLimit("arrays", "gpc2", 4, "frontend api"),
    TableLimit("arrays", "gpt0", 1, "frontend api"),
    TableLimit("networks", "http_req_rate", 5001, "frontend api"),
    TableLimit("www", "bytes_out_cnt", 11 * 1024, "frontend api"),
    TableLimit("api", "conn_cur", 20, "frontend api"),
    TableLimit("arrays", "gpc1_rate", 7, "frontend api"),
)


def test_haproxy_limits_are_parsed_in_every_notation():
    assert parse_limits(STORY.read_text()) == FOUND


def test_haproxy_limits_query_reads_only_lines_about_limits():
    grep = haproxy_limits.query_limits().command
    assert isinstance(grep, Shell)
    command = grep.resolve({"haproxy.config": str(STORY)}, sudo=False)
    output = subprocess.run(command.words, capture_output=True, text=True, check=True).stdout
    assert parse_limits(output) == FOUND
    assert "bind" not in output
    assert "stats socket" not in output


def test_haproxy_limits_are_read_from_a_directory_of_configurations(tmp_path: Path):
    (tmp_path / "10-www.cfg").write_text("backend www\n acl a src_conn_rate gt 42\n")
    (tmp_path / "20-api.cfg").write_text("backend api\n acl a src_conn_rate gt 7\n")
    grep = haproxy_limits.query_limits().command
    assert isinstance(grep, Shell)
    command = grep.resolve({"haproxy.config": str(tmp_path)}, sudo=False)
    output = subprocess.run(command.words, capture_output=True, text=True, check=True).stdout
    limits = {(limit.table, limit.threshold) for limit in parse_limits(output)}
    assert limits == {("www", 43), ("api", 8)}


@pytest.mark.parametrize(
    ("line", "reached"),
    [
        ("acl a src_conn_rate gt 42", 43),
        ("acl a src_conn_rate ge 42", 42),
        ("acl a src_conn_rate -m int gt 42", 43),
        ("acl a src_conn_rate 42:", 42),
        ("acl a src_conn_rate 42:50", 42),
        ("acl a src_conn_rate eq 0", None),
        ("acl a src_conn_rate ge 0", None),
        ("acl a src_conn_rate lt 42", None),
        ("acl a src_conn_rate le 42", None),
        ("acl a src_conn_rate gt forty-two", None),
        ("acl a src_conn_rate gt ４２", None),
        ("acl a src_conn_rate gt", None),
        ("acl a src_conn_rate", None),
        ("acl a src_conn_rate gt 42 'unfinished", 43),
        ("# acl a src_conn_rate gt 42", None),
        ("acl a src_inc_gpc0 gt 0", None),
        ("acl a src_updt_conn_cnt gt 3", None),
        ("acl a path_beg /src_conn_rate gt 42", None),
    ],
)
def test_haproxy_acl_is_a_limit_when_a_high_counter_meets_it(line: str, reached: int | None):
    limits = parse_limits(f"backend www\n    {line}\n")
    assert [limit.threshold for limit in limits] == ([] if reached is None else [reached])


def test_haproxy_counter_tracked_in_a_frontend_applies_in_its_backend():
    config = (
        "frontend web\n http-request track-sc0 src table seen if TRUE table\n"
        "backend app\n acl a sc0_conn_rate gt 5\n"
    )
    assert parse_limits(config) == (TableLimit("seen", "conn_rate", 6, "backend app"),)


def test_haproxy_rule_in_defaults_has_no_table():
    assert parse_limits("defaults strict\n acl a src_conn_rate gt 5\n") == ()


def test_haproxy_line_before_the_first_section_is_ignored():
    assert parse_limits("acl a src_conn_rate gt 5\n\n") == ()


def test_client_above_a_haproxy_limit_is_reported_with_the_limit():
    limits = TableLimits(FOUND)
    busy = TableEntry(
        "203.0.113.9",
        0,
        1000,
        rates={"conn_rate": Rate(43, 100_000), "bytes_out_rate": Rate(6_000_000, 60_000)},
    )
    assert [str(excess) for excess in limits.list_excesses("www", busy)] == [
        "6,000,000 bytes out in 60 s at www (limit 5,000,000)",
        "43 connections in 100 s at www (limit 42)",
    ]
    assert limits.list_excesses("elsewhere", busy) == ()


def test_client_rate_at_a_haproxy_limit_is_not_an_excess():
    calm = TableEntry("203.0.113.9", 0, 1000, rates={"conn_rate": Rate(42, 100_000)})
    assert TableLimits(FOUND).list_excesses("www", calm) == ()


def test_lowest_of_two_haproxy_limits_is_named():
    limits = TableLimits((TableLimit("t", "gpc0", 11, "a"), TableLimit("t", "gpc0", 3, "b")))
    (excess,) = limits.list_excesses("t", TableEntry("203.0.113.9", 0, 1, counters={"gpc0": 20}))
    assert str(excess) == "20 gpc0 at t (limit 2)"
    assert limits.get_mark("t", "gpc0") == 3
    assert limits.get_mark("t", "gpc1") == 1


def test_unreadable_haproxy_limits_are_unknown_with_the_reason():
    output = "grep: /etc/haproxy/haproxy.cfg: Permission denied"

    def ask(host: str, query: Query[object]) -> object:
        raise find_failure(query.command, Answer(2, "", output), query.statuses) or AssertionError

    limits = haproxy_limits.read_limits(ask, "lb1")  # pyright: ignore[reportArgumentType] # it answers nothing
    assert limits.limits == ()
    assert limits.error == (f"the login cannot read HAProxy's configuration (output: {output})")


def test_unexpected_error_is_not_taken_for_unknown_haproxy_limits():
    def ask(host: str, query: Query[object]) -> object:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        haproxy_limits.read_limits(ask, "lb1")  # pyright: ignore[reportArgumentType] # it answers nothing
