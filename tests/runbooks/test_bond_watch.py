from dataclasses import replace

import pytest
from pydantic import ValidationError

from bot.model import request_form
from connectors import bond as dialect
from connectors.bond import Bond, BondSample, LinkCounters, parse_bond
from connectors.command import Shell
from runbooks.bond_watch import BondWatch
from tests.runbooks.network import build_network_fleet, recorded

WATCH = BondWatch.model_validate({"host": "nas1", "seconds": 5})
BOND = parse_bond("bond0", recorded("bond-rr"))


def make_sample(
    seconds: float, *, sent: tuple[int, ...], bond: Bond = BOND, errors: int = 0
) -> BondSample:
    counted = {
        member.name: LinkCounters(member.name, 1500, count, 2 * count, errors)
        for member, count in zip(bond.members, sent, strict=True)
    }
    return BondSample(seconds, bond, counted)


QUIET = make_sample(100.0, sent=(0, 0, 0, 0))


def change_member(**fields: object) -> Bond:
    first, *rest = BOND.members
    member = replace(first, **fields)  # type: ignore[arg-type]  # as the test says
    return replace(BOND, members=(member, *rest))


def test_bond_watch_reports_the_traffic_of_each_member():
    later = make_sample(105.0, sent=(5_000_000, 5_000_000, 10_000_000, 0))
    report = WATCH.report((QUIET, later))
    assert report.summary == (
        "bond0 on nas1 sent 32.0 and received 64.0 Mbit/s for 5 s; no link was lost"
    )
    assert report.healthy
    assert report.table is not None
    assert report.table.rows[2] == ("eth2", "up", "+0", "16.0", "50 %", "32.0", "50 %")
    assert list(report.findings) == [
        "eth3 is up and sent nothing: with few connections the hash may not use a member"
    ]


def test_bond_watch_of_an_idle_bond_has_no_findings():
    report = WATCH.report((QUIET, make_sample(105.0, sent=(0, 0, 0, 0))))
    assert (report.healthy, list(report.findings)) == (True, [])
    assert report.table is not None
    assert report.table.rows[0][4] == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"failure_count": 1}, "eth0 lost its link once meanwhile"),
        ({"failure_count": 3}, "eth0 lost its link 3 times meanwhile"),
        ({"link_state": "going down"}, "eth0 changed from up to going down meanwhile"),
    ],
)
def test_bond_link_that_changed_during_the_watch_is_a_finding(
    fields: dict[str, object], words: str
):
    report = WATCH.report(
        (QUIET, make_sample(105.0, sent=(1, 1, 1, 1), bond=change_member(**fields)))
    )
    assert not report.healthy
    assert report.findings[0].startswith(words)


def test_bond_link_lost_before_the_watch_is_no_finding():
    before = make_sample(100.0, sent=(0,) * 4, bond=change_member(failure_count=7))
    after = make_sample(105.0, sent=(0,) * 4, bond=change_member(failure_count=7))
    assert WATCH.report((before, after)).healthy


def test_growing_errors_of_a_bond_member_are_a_finding():
    report = WATCH.report((QUIET, make_sample(105.0, sent=(0,) * 4, errors=1200)))
    assert report.findings[0] == "eth0 had 1,200 errors meanwhile: check its cable and port"


def test_bond_members_that_join_or_leave_are_findings():
    smaller = replace(BOND, members=BOND.members[:3])
    gone = WATCH.report((QUIET, make_sample(105.0, sent=(0,) * 3, bond=smaller)))
    assert list(gone.findings) == ["eth3 left the bond"]
    report = WATCH.report(
        (make_sample(100.0, sent=(0,) * 3, bond=smaller), make_sample(105.0, sent=(0,) * 4))
    )
    assert list(report.findings) == ["eth3 joined the bond"]


def test_bond_watch_is_one_command_with_a_deadline_beyond_its_duration():
    command = dialect.query_samples("bond0", seconds=60).command
    assert isinstance(command, Shell)
    assert command.words[-2:] == ("/proc/net/bonding/bond0", "60")
    assert command.deadline > 60
    looks = f"{recorded('bond-rr-no-members')}{recorded('iproute2-6.1-link')}== 7.5\n"
    host = build_network_fleet({("nas1", str(command)): looks * 2}, platforms={"nas1": "linux"})
    long = BondWatch.model_validate({"host": "nas1", "seconds": 60})
    assert long.read(host.run_query)[0].uptime == 7.5


@pytest.mark.parametrize(
    "seconds", [0, -1, 61, 10**9, "x", "5; reboot", "5\n", "1e3", "", "٥", 1.5, None]
)
def test_bond_watch_duration_out_of_range_is_refused(seconds: object):
    with pytest.raises(ValidationError):
        BondWatch.model_validate({"host": "nas1", "seconds": seconds})


@pytest.mark.parametrize(
    "name",
    [
        *("../../etc/shadow", "bond0/../x", "bond0; reboot", "bond0\n", "-a", ".", "..", ""),
        *("bond 0", "bond0\0", "bond0\u200b", "$(id)", "b" * 16, "*", "bond0'", "ｂond0"),
    ],
)
def test_invalid_bond_name_is_refused_by_bond_watch(name: str):
    with pytest.raises(ValidationError):
        BondWatch.model_validate({"host": "nas1", "bond": name})


def test_bond_watch_is_parsed_with_bond_and_seconds():
    typed = request_form.parse_request(BondWatch, ["nas1", "bond0", "5"])
    assert typed == WATCH


def test_bond_watch_reports_the_other_members_when_one_has_no_counters():
    """A row of `ip` that is not understood, or a card that is just removed."""
    later = make_sample(105.0, sent=(0, 0, 0, 0))
    known = {name: link for name, link in later.links.items() if name != "eth1"}
    report = WATCH.report((QUIET, replace(later, links=known)))
    assert report.findings == [
        "eth1 is not among the interfaces that `ip` lists, so its traffic is unknown"
    ]
    assert report.table is not None
    assert [row[0] for row in report.table.rows] == ["eth0", "eth2", "eth3"]
