from connectors.stick_table import TableHead
from runbooks.abusers_tables import ListStickTables
from tests.runbooks.balancer import balancer

LOOK = ListStickTables.model_validate({"host": "lb1"})


def test_every_table_is_shown_with_how_full_it_is():
    report = LOOK.report(LOOK.read(balancer().ask))
    assert report.healthy
    assert report.findings == []
    assert report.table is not None
    assert ("users", "string keys", "1,024", "3", "0.3 %") in report.table.rows
    assert ("http", "IPv4 addresses", "204,800", "5", "0.0 %") in report.table.rows
    assert report.summary == (
        "lb1 keeps 5 stick tables: the fullest is users with 3 of 1,024 entries"
    )


def test_a_table_that_is_nearly_full_is_a_finding():
    report = LOOK.report((TableHead("http", "ip", 100, 90), TableHead("www", "ip", 100, 89)))
    assert not report.healthy
    (finding,) = report.findings
    assert finding.startswith("http is 90.0 % full: ")
    assert report.summary.startswith("lb1 keeps 2 stick tables")


def test_a_balancer_without_tables_is_well():
    assert LOOK.report(()).summary == "lb1 keeps no stick tables"
    assert LOOK.report(()).healthy


def test_one_table_is_one_table():
    assert "keeps 1 stick table:" in LOOK.report((TableHead("http", "ip", 0, 0),)).summary
