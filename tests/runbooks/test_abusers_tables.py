from pathlib import Path

from connectors import haproxy
from connectors.stick_table import TableHead
from tests.runbooks.balancer import build_balancer_fleet
from tests.runbooks.declared import load_check

ListStickTables = load_check("abusers tables")
LOOK = ListStickTables.model_validate({"host": "lb1"})


def test_abusers_tables_lists_every_table_with_its_use():
    report = LOOK.report(LOOK.read(build_balancer_fleet().run_query))
    assert report.healthy
    assert report.findings == []
    assert report.table is not None
    assert ("users", "string keys", "1,024", "3", "0.3 %", "-") in report.table.rows
    assert ("http", "IPv4 addresses", "204,800", "5", "0.0 %", "-") in report.table.rows
    assert report.summary == (
        "lb1 has 5 stick tables: the fullest is users with 3 of 1,024 entries"
    )


def test_stick_table_that_is_nearly_full_is_a_finding():
    report = LOOK.report(((TableHead("http", "ip", 100, 90), TableHead("www", "ip", 100, 89)), ()))
    assert not report.healthy
    (finding,) = report.findings
    assert finding.startswith("http is 90.0 % full: ")
    assert report.summary.startswith("lb1 has 2 stick tables")


def test_haproxy_without_stick_tables_needs_attention():
    assert LOOK.report(((), ())).summary == "lb1 has no stick tables"
    assert not LOOK.report(((), ())).healthy


def test_one_stick_table_is_counted_in_the_singular():
    assert "has 1 stick table:" in LOOK.report(((TableHead("http", "ip", 0, 0),), ())).summary


PEERS = Path(__file__).parents[1] / "connectors" / "answers" / "haproxy"


def test_abusers_tables_names_peers_with_a_copy_of_a_table():
    fleet = build_balancer_fleet()
    fleet.script("lb1", haproxy.query_peers().command, (PEERS / "2.6-peers.txt").read_text())
    report = LOOK.report(LOOK.read(fleet.run_query))
    assert report.healthy
    assert report.table is not None
    assert {row[0]: row[5] for row in report.table.rows}["http"] == "lb2"
    assert {row[0]: row[5] for row in report.table.rows}["www"] == "-"


def test_haproxy_peer_that_is_not_connected_is_a_finding():
    fleet = build_balancer_fleet()
    fleet.script("lb1", haproxy.query_peers().command, (PEERS / "2.6-peers-alone.txt").read_text())
    report = LOOK.report(LOOK.read(fleet.run_query))
    assert not report.healthy
    assert report.findings[0].startswith("lb2 of the peers mesh is not connected")


def test_abusers_tables_lists_tables_when_peers_cannot_be_read():
    """HAProxy before 2.0 has no `show peers`."""
    fleet = build_balancer_fleet()
    fleet.script("lb1", haproxy.query_peers().command, "Unknown command. Please enter one of …\n")
    report = LOOK.report(LOOK.read(fleet.run_query))
    assert report.summary.startswith("lb1 has 5 stick tables")
    (finding,) = report.findings
    assert finding.startswith("the peers could not be read: ")
