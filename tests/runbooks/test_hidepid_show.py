import pytest

from connectors import hidepid
from connectors.command import Answer
from tests.connectors.storage import recorded
from tests.runbooks.declared import load_check
from tests.scripted_fleet import ScriptedFleet

ShowHidepid = load_check("hidepid show")

SHOW = ShowHidepid.model_validate({"host": "web1"})
NO_LINE = Answer(1, "")
FSTAB = recorded("findmnt-fstab-proc")


@pytest.mark.parametrize(
    ("now", "fstab", "summary", "findings"),
    [
        ("findmnt-proc", NO_LINE, "On web1 all users see all processes (hidepid=0)", []),
        (
            "findmnt-proc-noaccess-gid",
            FSTAB,
            "On web1 users see that others have processes, but not their details (hidepid=1); "
            "members of the group 5 see all",
            [],
        ),
        (
            "findmnt-proc-invisible",
            FSTAB,
            "On web1 users see only their own processes (hidepid=2)",
            ["fstab has hidepid=1"],
        ),
        (
            "findmnt-proc-invisible",
            NO_LINE,
            "On web1 users see only their own processes (hidepid=2)",
            ["fstab has no line"],
        ),
    ],
)
def test_hidepid_show_reports_what_users_see_and_differences_to_fstab(
    now: str, fstab: str | Answer, summary: str, findings: list[str]
):
    fleet = ScriptedFleet(hosts=["web1"])
    fleet.script("web1", hidepid.query_current().command, recorded(now))
    fleet.script("web1", hidepid.query_fstab().command, fstab)
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.summary == summary
    assert report.healthy is (not findings)
    assert all(
        finding.startswith(begin) for finding, begin in zip(report.findings, findings, strict=True)
    )
