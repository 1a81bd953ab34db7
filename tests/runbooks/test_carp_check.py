import pytest

from connectors import carp
from connectors.carp import CarpGroup, CarpHost
from connectors.errors import UnreachableError
from runbooks import Refused
from runbooks.carp_check import CheckCarp
from tests.connectors.test_carp import FREEBSD, OPENBSD
from tests.scripted_fleet import ScriptedFleet

ALONE = CheckCarp.model_validate({"host": "fw1"})
BOTH = CheckCarp.model_validate({"host": "fw1", "other": "fw2"})


def make_host(*states: str, demotion: int = 0) -> CarpHost:
    groups = [CarpGroup("em0", n, state, 0, ["192.0.2.1"]) for n, state in enumerate(states, 1)]
    return CarpHost(groups, demotion)


def test_carp_check_reads_both_firewalls():
    query = carp.query_groups().command
    fleet = ScriptedFleet({("fw1", query): FREEBSD, ("fw2", query): OPENBSD})
    report = BOTH.report(BOTH.read(fleet.run_query))
    assert report.summary == "2 CARP groups on fw1 and fw2: 3 to fix"
    assert report.table
    assert report.table.rows[0] == ("fw1", "igb0", "1", "MASTER", "0", "198.51.100.10")


def test_carp_master_and_backup_are_healthy():
    assert BOTH.report({"fw1": make_host("MASTER"), "fw2": make_host("BACKUP")}).healthy
    assert ALONE.report({"fw1": make_host("BACKUP", "BACKUP")}).healthy


@pytest.mark.parametrize(
    ("one", "other", "finding"),
    [
        (make_host("MASTER"), make_host("MASTER"), "fw1 and fw2 are both master of vhid 1"),
        (make_host("BACKUP"), make_host("BACKUP"), "vhid 1 has no master"),
        (make_host("MASTER"), make_host(), "fw2 has no vhid 1"),
        (make_host("MASTER"), make_host("BACKUP", demotion=240), "fw2 has demoted itself by 240"),
        (make_host("MASTER"), make_host("INIT"), "fw2: em0 vhid 1 is INIT: check its link"),
    ],
)
def test_carp_pair_without_one_master_and_one_backup_is_a_finding(
    one: CarpHost, other: CarpHost, finding: str
):
    (problem,) = BOTH.report({"fw1": one, "fw2": other}).findings
    assert problem.startswith(finding)


def test_carp_host_that_is_master_of_some_groups_only_is_a_finding():
    (problem,) = ALONE.report({"fw1": make_host("MASTER", "BACKUP")}).findings
    assert problem.startswith("fw1 is master of vhid 1 only")


def test_carp_check_reports_no_groups_and_refuses_the_same_host_twice():
    assert ALONE.report({"fw1": make_host()}).summary == "No CARP group on fw1"
    same = CheckCarp.model_validate({"host": "fw1", "other": "fw1"})
    with pytest.raises(Refused, match="is given twice"):
        same.read(ScriptedFleet(hosts=["fw1"]).run_query)


def test_carp_check_reports_one_firewall_when_the_other_cannot_be_read():
    query = carp.query_groups().command
    fleet = ScriptedFleet({("fw1", query): FREEBSD, ("fw2", query): UnreachableError("no route")})
    report = BOTH.report(BOTH.read(fleet.run_query))
    assert report.summary.startswith("2 CARP groups on fw1: ")
    assert report.findings[0] == (
        "fw2 could not be read, so the two sides were not compared: no route"
    )
    fleet.script("fw1", query, UnreachableError("no route either"))
    with pytest.raises(UnreachableError, match="either"):
        BOTH.read(fleet.run_query)
