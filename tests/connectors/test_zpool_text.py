"""Parser of `zpool status`, with recorded answers."""

from datetime import datetime
from pathlib import Path

import pytest

from connectors.zpool import Pool, Scan, Vdev
from connectors.zpool_text import parse_pools
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "zpool"


def recorded(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


def pool_of(name: str) -> Pool:
    (pool,) = parse_pools(recorded(name))
    return pool


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-21 {clock}")


def scan_line(*lines: str) -> Scan | None:
    """Parse these scan lines inside a recorded answer."""
    text = recorded("2.1-never").replace(
        "config:", "  scan: " + "\n\t".join(lines) + "\nconfig:", 1
    )
    (pool,) = parse_pools(text)
    return pool.scans[0] if pool.scans else None


@pytest.mark.parametrize(
    ("name", "scan"),
    [
        (
            "2.1-finished",
            Scan("scrub", "finished", at("08:08:55"), seconds_taken=2, repaired=0, errors=0),
        ),
        (
            "2.1-repaired",
            Scan("scrub", "finished", at("08:09:01"), seconds_taken=2, repaired=15872, errors=0),
        ),
        ("2.1-canceled-spare", Scan("scrub", "stopped", at("08:14:39"))),
        ("2.1-paused", Scan("scrub", "paused", at("08:08:37"), percent=91.72, repaired=0)),
        (
            "2.1-running",
            Scan(
                "scrub",
                "running",
                at("08:08:04"),
                percent=30.33,
                rate=18245222,
                seconds_left=16,
                repaired=0,
            ),
        ),
        (
            "2.1-resilvering",
            Scan(
                "resilver",
                "running",
                at("08:09:36"),
                percent=34.5,
                rate=18140365,
                seconds_left=15,
                repaired=29 * 1024**2,
            ),
        ),
        (
            "2.1-resilvered",
            Scan(
                "resilver",
                "finished",
                at("08:09:54"),
                seconds_taken=18,
                repaired=100 * 1024**2,
                errors=0,
            ),
        ),
        (
            "fuse-finished",
            Scan("scrub", "finished", at("08:03:45"), seconds_taken=0, repaired=0, errors=0),
        ),
        (
            "fuse-repaired",
            Scan(
                "scrub",
                "finished",
                at("08:03:58"),
                seconds_taken=0,
                repaired=147 * 1024**2,
                errors=0,
            ),
        ),
        ("fuse-running", Scan("scrub", "running", percent=25.08, seconds_left=0, repaired=0)),
        (
            "fuse-stopped",
            Scan("scrub", "stopped", at("08:05:22"), seconds_taken=0, repaired=0, errors=0),
        ),
        (
            "fuse-resilvering",
            Scan("resilver", "running", percent=61.16, seconds_left=0, repaired=304 * 1024**2),
        ),
        (
            "fuse-resilvered",
            Scan("resilver", "finished", at("08:04:09"), seconds_taken=0, repaired=8192, errors=0),
        ),
    ],
)
def test_last_scan_of_zpool_status_text_is_parsed(name: str, scan: Scan):
    assert pool_of(name).scans == (scan,)


@pytest.mark.parametrize("name", ["2.1-never", "fuse-never", "fuse-imported"])
def test_pool_that_was_never_scanned_has_no_scans(name: str):
    assert pool_of(name).scans == ()


def test_scrub_progress_of_newer_and_older_releases_is_parsed():
    newer = scan_line(
        "scrub in progress since Wed Jan 21 13:21:33 2026",
        "266T / 749T scanned at 3.30G/s, 260T / 749T issued at 3.23G/s",
        "0B repaired, 34.79% done, 1 days 18:56:16 to go",
    )
    assert newer is not None
    assert (newer.percent, newer.seconds_left, newer.rate) == (34.79, 154576, 3468186092)
    older = scan_line(
        "scrub in progress since Sun Feb  4 12:04:33 2018",
        "626G scanned out of 1.75T at 122M/s, 2h43m to go",
        "0B repaired, 34.86% done",
    )
    assert older is not None
    assert (older.percent, older.seconds_left, older.rate) == (34.86, 9780, 122 * 1024**2)
    endless = scan_line(
        "scrub in progress since Thu May 23 10:05:14 2019",
        "460G scanned at 1.31G/s, 1.11P issued at 3.23T/s, 32.7T total",
        "0B repaired, 3474.55% done, no estimated completion time",
    )
    assert endless is not None
    assert (endless.percent, endless.seconds_left) == (3474.55, None)
    old = scan_line("scrub repaired 0 in 1h18m with 0 errors on Tue Nov  6 22:47:38 2012")
    assert old is not None
    assert old.seconds_taken == 4680


def test_scrub_and_resilver_in_one_zpool_status_are_distinguished():
    text = recorded("2.1-finished").replace(
        "config:",
        "  scan: resilver (mirror-0) in progress since Sat Nov 21 08:09:36 2026\n"
        "\t401M / 401M scanned at 50.2M/s, 138M / 401M issued at 17.3M/s\n"
        "\t29.0M resilvered, 34.50% done, no estimated completion time\nconfig:",
        1,
    )
    (pool,) = parse_pools(text)
    assert pool.last_scrub is not None
    assert pool.last_scrub.state == "finished"
    assert pool.running_resilver is not None
    assert pool.running_resilver.percent == 34.5


def test_error_scrub_in_zpool_status_text_is_not_a_scrub():
    text = recorded("2.1-never").replace(
        "config:",
        " scrub: error scrub in progress since Sat Nov 21 08:09:36 2026\n"
        "\t12.50% done, issued I/O for 3 error blocks\nconfig:",
        1,
    )
    (pool,) = parse_pools(text)
    assert pool.last_scrub is None
    assert pool.running_scan == Scan("error scrub", "running", at("08:09:36"), percent=12.5)


def test_error_counters_of_an_online_vdev_are_parsed():
    pool = pool_of("fuse-repaired")
    assert pool.state == "ONLINE"
    (damaged,) = [vdev for vdev in pool.vdevs if vdev.checksum_errors]
    assert damaged == Vdev(
        "/srv/disks/d1", "ONLINE", checksum_errors=3512, note="147M repaired", group="data"
    )


def test_spares_are_parsed_without_counters_and_with_their_notes():
    spares = {
        name: next(vdev for vdev in pool_of(name).vdevs if vdev.group == "spares")
        for name in ("2.1-canceled-spare", "2.1-spare-in-use")
    }
    assert spares["2.1-canceled-spare"] == Vdev("sde", "AVAIL", group="spares")
    assert spares["2.1-spare-in-use"] == Vdev(
        "sde", "INUSE", note="currently in use", group="spares"
    )


def test_missing_disk_is_parsed_with_its_guid_and_former_path():
    gone = [vdev for vdev in pool_of("2.1-label-missing").vdevs if vdev.state == "UNAVAIL"]
    assert gone == [Vdev("17805619015353095262", "UNAVAIL", note="was /dev/sdd1")]


def test_only_disks_of_zpool_status_are_leaf_vdevs():
    leaves = [vdev.name for vdev in pool_of("2.1-resilvering").vdevs if vdev.is_leaf]
    assert leaves == ["sdb", "sdc", "sdd", "sde", "sdf"]


def test_classes_of_vdevs_are_parsed_with_their_heads():
    groups = {vdev.name: vdev.group for vdev in pool_of("2.2-classes").vdevs if vdev.is_leaf}
    assert groups == {
        "/dev/sdb1": "data",
        "/dev/sdc1": "data",
        "/dev/sdg1": "dedup",
        "/dev/nvme0n1": "special",
        "/dev/nvme1n1": "special",
        "/dev/sdd1": "logs",
        "/dev/sde1": "cache",
        "/dev/sdf1": "spares",
    }


def test_draid_replacing_and_spare_vdevs_are_parsed_with_their_notes():
    pool = pool_of("2.3-draid")
    notes = {vdev.name: vdev.note for vdev in pool.vdevs if vdev.is_leaf and vdev.note}
    assert notes == {
        "/dev/sdb1": "(resilvering)",
        "/dev/sdc1": "was /dev/sdc1",
        "draid2-0-0": "currently in use",
        "1234567890": "was /dev/sdd1/old",
        "/dev/sdx1": "block size: 512B configured, 4096B native  (awaiting resilver)",
        "/dev/sde1": "(repairing)",
        "/dev/sdf1": "(initializing)",
        "/dev/sdg1": "(trimming)",
        "/dev/sdz1": "(removing)",
        "/dev/nvme0n1p1": "(non-allocating)",
        "/dev/nvme1n1p1": "too many slow I/Os",
        "/dev/sdy1": "in use by pool 'other'",
        "/dev/sdw1": "cannot open",
    }
    assert not {"spare-1", "replacing-2"} & {vdev.name for vdev in pool.vdevs if vdev.is_leaf}
    assert (pool.error_count, pool.action) == (None, "Wait for the resilver to complete.")
    assert pool.running_resilver is not None
    assert pool.running_resilver.percent == 42.03
    assert pool.last_scrub is not None
    assert pool.last_scrub.seconds_taken == 94321


# print_removal_status, print_raidz_expand_status and print_checkpoint_status.
@pytest.mark.parametrize(
    "line",
    [
        "remove: Removal of vdev 1 copied 4.26G in 0h0m, completed on Sat Nov 21 08:01:00 2026\n"
        "\t576 memory used for removed device mappings\n",
        "remove: Removal of /dev/sdz1 canceled on Sat Nov 21 08:01:00 2026\n",
        "expand: expanded raidz1-0 copied 4.26G in 00:10:00, on Sat Nov 21 08:01:00 2026\n",
        "checkpoint: discarding, 1.32M remaining.\n",
        "    scan warning: skipped blocks that are only referenced by the checkpoint.\n",
    ],
)
def test_removals_expansions_and_checkpoints_are_not_scans(line: str):
    text = recorded("2.1-finished")
    (pool,) = parse_pools(text.replace("config:", f"{line}config:", 1))
    assert (pool,) == parse_pools(text)


@pytest.mark.parametrize(
    ("lines", "scan"),
    [
        (
            ("resilvered (mirror-0) 29.0M in 00:00:18 with 0 errors on Sat Nov 21 08:08:55 2026",),
            Scan(
                "resilver",
                "finished",
                at("08:08:55"),
                seconds_taken=18,
                repaired=29 * 1024**2,
                errors=0,
            ),
        ),
        (
            ("resilver (mirror-0) canceled on Sat Nov 21 08:08:55 2026",),
            Scan("resilver", "stopped", at("08:08:55")),
        ),
        (
            (  # OpenZFS 2.0 and 2.1: `issued` without `at`
                "resilver (mirror-0) in progress since Sat Nov 21 08:08:55 2026",
                "401M scanned at 50.0M/s, 138M issued 17.3M/s, 401M total",
                "29.0M resilvered, 34.50% done, 0 days 00:00:05 to go",
            ),
            Scan(
                "resilver",
                "running",
                at("08:08:55"),
                percent=34.5,
                rate=50 * 1024**2,
                seconds_left=5,
                repaired=29 * 1024**2,
            ),
        ),
        (
            (  # OpenZFS 2.2: rates of zero are left out
                "scrub in progress since Sat Nov 21 08:08:55 2026",
                "0B / 401M scanned, 0B / 401M issued",
                "0B repaired, 0.00% done, no estimated completion time",
            ),
            Scan("scrub", "running", at("08:08:55"), percent=0.0, repaired=0),
        ),
        (
            (
                "scrub paused since Sat Nov 21 08:08:55 2026",
                "scrub started on Sat Nov 21 08:00:00 2026",
                "401M / 401M scanned, 368M / 401M issued",
                "0B repaired, 91.72% done",
            ),
            Scan("scrub", "paused", at("08:08:55"), percent=91.72, repaired=0),
        ),
    ],
)
def test_scans_of_each_openzfs_release_are_parsed(lines: tuple[str, ...], scan: Scan):
    assert scan_line(*lines) == scan


@pytest.mark.parametrize(
    ("name", "errors", "files"),
    [
        ("2.1-never", 0, ()),
        ("2.1-lost", 2, ("tank:<0x0>", "/tank/more")),
        ("2.1-lost-unnamed", 2, ()),
        ("fuse-lost", 1, ("/tank/data",)),
        ("2.1-suspended-first", 3, ()),
    ],
)
def test_damaged_files_in_zpool_status_text_are_parsed(
    name: str, errors: int, files: tuple[str, ...]
):
    pool = pool_of(name)
    assert (pool.error_count, pool.damaged_files) == (errors, files)


def test_zpool_status_without_an_errors_line_is_a_finding():
    text = recorded("2.1-never").replace("errors: No known data errors\n", "")
    (pool,) = parse_pools(text)
    assert pool.error_count is None
    assert pool.findings == ["ZFS does not report whether tank has lost data"]


def test_every_pool_of_zpool_status_is_parsed():
    states = {pool.name: pool.state for pool in parse_pools(recorded("2.1-several"))}
    assert states == {"tank": "DEGRADED", "tank.a-b_c:1": "ONLINE", "tank2": "ONLINE"}
    pools = {pool.name: pool for pool in parse_pools(recorded("2.1-suspended"))}
    assert pools["tank2"].state == "SUSPENDED"
    assert pools["tank2"].broken_disks == "sdg is UNAVAIL"


@pytest.mark.parametrize("answer", ["", "\n", "no pools available\n"])
def test_zpool_status_without_pools_is_parsed_as_empty(answer: str):
    assert parse_pools(answer) == ()


@pytest.mark.parametrize(
    "answer",
    [
        "Bad system call\n",
        "all pools are healthy\n",
        "warning: something\n" + recorded("2.1-finished"),
        recorded("2.1-finished")[:60],
    ],
)
def test_other_output_than_zpool_status_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_pools(answer))


@pytest.mark.parametrize(
    ("word", "spoiled"),
    [
        (" state:", " stately:"),
        ("NAME        STATE", "NAM         STATUS"),
        ("    ONLINE       0     0     0", "  fine"),
        ("scrub repaired 0B in", "scrub mended 0B in"),
        ("Sat Nov 21", "Saturday 21"),
        ("00:00:02", "two seconds"),
        ("repaired 0B", "repaired 0Q"),
        ("scan: ", "scan: \x1b[1m"),
        ("config:", "confit:"),
    ],
)
def test_invalid_zpool_status_text_is_not_understood(word: str, spoiled: str):
    text = recorded("2.1-finished")
    assert word in text
    assert not is_understood(lambda: parse_pools(text.replace(word, spoiled)))
