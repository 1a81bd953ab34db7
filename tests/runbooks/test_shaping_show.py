from connectors import shaping
from connectors.probation import query_probation
from runbooks import Report
from runbooks.shaping_show import ShowShaping
from tests.connectors.test_shaping import CLASSES, LIMITED, NONE, SOMEBODYS
from tests.scripted_fleet import ScriptedFleet

SHOW = ShowShaping.model_validate({"host": "web1"})


def report_of(answer: str, probation: str = "") -> Report:
    fleet = ScriptedFleet(
        {
            ("web1", shaping.query_interfaces().command): answer,
            ("web1", shaping.query_classes("eth1").command): CLASSES,
            ("web1", query_probation("shaping").command): probation,
        }
    )
    return SHOW.report(SHOW.read(fleet.run_query))


def test_shaping_show_reports_a_host_without_limits():
    assert report_of(NONE) == Report("web1 has no limit from Keyturn", findings=[])


def test_shaping_show_notes_limits_on_probation():
    report = report_of(LIMITED, "armed 0123456789abcdef 87\n")
    assert report.healthy
    assert list(report.findings) == [
        "the limits are on probation: in 87 s the host restores what was, unless Keyturn confirms "
        "the change"
    ]


def test_shaping_show_lists_limits_and_drops_for_each_direction():
    report = report_of(LIMITED)
    assert report.summary == "web1 limits eth0: 1,024 kbit/s in, 512 kbit/s out"
    assert report.healthy
    assert report.table is not None
    assert report.table.rows == [
        ("eth0", "in", "1,024 kbit/s", "76", "92"),
        ("eth0", "out", "512 kbit/s", "79", "93"),
    ]


def test_shaping_show_reports_a_foreign_qdisc_as_a_finding():
    report = report_of(SOMEBODYS)
    assert report.summary == "web1 has no limit from Keyturn"
    assert len(report.findings) == 3
    assert report.table is not None
    limits = {(row[0], row[1]): row[2] for row in report.table.rows}
    assert limits["eth0", "out"] == "tbf, not from Keyturn, 1,000 kbit/s"
    assert "class 1:10 3Mbit to 8Mbit" in limits["eth1", "out"]
    assert limits["eth1", "in"] == "ingress, not from Keyturn"
