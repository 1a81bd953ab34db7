import pytest

from connectors import raid
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.raid import ArrayProgress, RaidArray, parse_arrays, parse_detail, parse_mismatches
from tests.connectors.storage import recorded

RECOVERY = ArrayProgress("recovery", 0.7, 3.9, 2176)
CHECK = ArrayProgress("check", 1.7, 2.7, 3157)
MD0 = RaidArray("md0", is_active=True, level="raid5", member_count=3, working_count=2)
MD1 = RaidArray("md1", is_active=True, level="raid1", member_count=2, working_count=2)


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("none", ()),
        (
            "clean",
            (
                RaidArray("md1", is_active=True, level="raid10", member_count=2, working_count=2),
                RaidArray("md0", is_active=True, level="raid1", member_count=2, working_count=2),
            ),
        ),
        (
            "recovery",
            (
                RaidArray(
                    "md0",
                    is_active=True,
                    level="raid5",
                    member_count=3,
                    working_count=2,
                    progress=RECOVERY,
                ),
            ),
        ),
        ("degraded", (MD0,)),
        (
            "check",
            (
                RaidArray(
                    "md1",
                    is_active=True,
                    level="raid1",
                    member_count=2,
                    working_count=2,
                    progress=CHECK,
                ),
                MD0,
            ),
        ),
        (
            "read-only",
            (
                RaidArray(
                    "md4",
                    is_active=True,
                    level="raid1",
                    is_read_only=True,
                    member_count=2,
                    working_count=2,
                    is_waiting=True,
                ),
                RaidArray(
                    "md3",
                    is_active=True,
                    level="raid1",
                    is_read_only=True,
                    member_count=2,
                    working_count=2,
                ),
                RaidArray("md2", is_active=True, level="raid0"),
            ),
        ),
    ],
)
def test_mdstat_of_the_kernel_is_parsed(name: str, arrays: tuple[RaidArray, ...]):
    assert parse_arrays(recorded(f"mdstat-{name}")) == arrays


def test_inactive_raid_array_of_mdstat_is_parsed():
    md3 = parse_arrays(recorded("mdstat-inactive"))[0]
    assert md3 == RaidArray("md3", is_active=False, level="")


def test_a_container_of_arrays_is_no_array_that_is_inactive():
    """Of an array on an Intel controller, from a report to linux-raid."""
    (array,) = parse_arrays(
        "Personalities : [raid6] [raid5] [raid4]\n"
        "md126 : active raid5 sda[2] sde[1] sdd[0]\n"
        "      1953513472 blocks super external:/md127/0 level 5, 128k chunk, "
        "algorithm 0 [3/3] [UUU]\n\n"
        "md127 : inactive sdd[2](S) sda[1](S) sde[0](S)\n"
        "      15603 blocks super external:imsm\n\nunused devices: <none>\n"
    )
    assert (array.name, array.is_active, array.is_degraded) == ("md126", True, False)


def test_empty_mdstat_has_no_arrays():
    assert parse_arrays("") == ()


def test_raid_array_is_degraded_only_by_missing_members():
    assert MD0.is_degraded
    assert not MD1.is_degraded
    assert not RaidArray("md2", is_active=True, level="raid0").is_degraded


@pytest.mark.parametrize(
    ("name", "level", "state", "layout", "chunk", "states"),
    [
        ("raid1", "raid1", "clean", "", "", ["active sync"] * 2),
        ("raid10-far", "raid10", "active", "far=2", "512K", ["active sync"] * 2),
        (
            "raid5-recovery",
            "raid5",
            "clean, degraded, recovering",
            "left-symmetric",
            "512K",
            ["active sync", "active sync", "spare rebuilding", "spare"],
        ),
        (
            "raid5-degraded",
            "raid5",
            "clean, degraded",
            "left-symmetric",
            "512K",
            ["removed", "active sync", "active sync", "faulty", "faulty"],
        ),
        ("raid1-checking", "raid1", "clean, checking", "", "", ["active sync"] * 2),
        (
            "raid10-degraded",
            "raid10",
            "clean, degraded",
            "near=2",
            "512K",
            ["active sync set-A", "removed", "active sync set-A", "removed"],
        ),
        ("raid0", "raid0", "clean", "", "512K", ["active sync"] * 2),
        ("raid1-pending", "raid1", "clean, resyncing (PENDING)", "", "", ["active sync"] * 2),
    ],
)
def test_mdadm_detail_of_an_array_is_parsed(
    name: str, level: str, state: str, layout: str, chunk: str, states: list[str]
):
    detail = parse_detail(recorded(f"mdadm-{name}"))
    assert (detail.level, detail.state, detail.layout, detail.chunk) == (
        level,
        state,
        layout,
        chunk,
    )
    assert [member[1] for member in detail.members] == states


def test_raid_members_of_mdadm_are_parsed_by_device():
    detail = parse_detail(recorded("mdadm-raid5-degraded"))
    assert detail.members[0] == ("", "removed")
    assert detail.members[3] == ("/dev/sda", "faulty")


def test_raid_mismatch_counts_are_parsed():
    assert parse_mismatches(recorded("mismatches")) == {"md1": 8192, "md3": 0}
    assert parse_mismatches("") == {}


def test_broken_raid_array_is_parsed_with_the_others():
    """The kernel prints `broken` for an array that has lost too many members."""
    md1, md0 = parse_arrays(recorded("mdstat-broken"))
    assert (md1.name, md1.is_broken, md1.is_active, md1.is_degraded) == ("md1", True, True, True)
    assert (md0.name, md0.is_broken, md0.working_count) == ("md0", False, 1)


@pytest.mark.parametrize(
    ("known", "odd"),
    [
        ("active raid10", "melting raid10"),
        ("raid10 ", "raid10 ?"),
        ("[2/2]", "[2/"),
    ],
)
def test_odd_array_of_mdstat_does_not_hide_the_others(known: str, odd: str):
    damaged = recorded("mdstat-clean").replace(known, odd, 1)
    (_, md0) = parse_arrays(recorded("mdstat-clean"))
    assert parse_arrays(damaged) == (md0,)
    (row,) = parse_arrays(damaged).odd
    assert row.text.startswith("md1 : ")


@pytest.mark.parametrize("answer", ["x", "md0 : active raid1\n"])
def test_invalid_mdstat_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        parse_arrays(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "mdadm: cannot open",
        recorded("mdadm-raid1").replace("Raid Level", "Level"),
    ],
)
def test_invalid_mdadm_detail_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        parse_detail(answer)


def test_odd_raid_member_and_mismatch_count_are_kept():
    detail = parse_detail(recorded("mdadm-raid1").replace("8        0        0", "eight"))
    assert (len(detail.members), len(detail.members.odd)) == (1, 1)
    (odd,) = parse_mismatches("/sys/block/md1/md/mismatch_cnt:many\n").odd
    assert odd.text == "/sys/block/md1/md/mismatch_cnt:many"


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("mdadm: must be super-user to perform this action", "requires root"),
        ("mdadm: cannot open /dev/md0: No such file or directory", "does not exist any more"),
        ("timeout: failed to run command 'mdadm': No such file or directory", "install mdadm"),
    ],
)
def test_mdadm_errors_are_explained(output: str, meaning: str):
    query = raid.query_detail("md0")
    assert meaning in str(find_failure(query.command, Answer(1, "", output), query.statuses))
