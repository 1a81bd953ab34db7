"""Sizes and durations of ZFS, and the findings of a pool."""

from datetime import UTC, datetime

import pytest

from connectors.errors import ParseError
from connectors.zpool import (
    Pool,
    Scan,
    Vdev,
    parse_duration,
    parse_size,
)
from connectors.zpool_text import parse_pools


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("0B", 0),
        ("15", 15),
        ("3.43K", 3512),
        ("147M", 147 * 1024**2),
        ("1.5G", 1536 * 1024**2),
        ("2T", 2 * 1024**4),
        ("1.11P", round(1.11 * 1024**5)),
    ],
)
def test_zfs_size_is_parsed(text: str, amount: int):
    assert parse_size(text) == amount


@pytest.mark.parametrize("text", ["", "-", "K", "1.2.3K", "12k", "1e9", "-1", " 1", "٣"])
def test_invalid_zfs_size_is_a_parse_error(text: str):
    with pytest.raises(ParseError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("00:00:40", 40),
        ("18:56:16", 68176),
        ("3 days 07:42:27", 286947),
        ("1 days 18:56:16", 154576),
        ("158831 days 07:42:27", 13723026147),
        ("0h0m", 0),
        ("5h4m", 18240),
        ("1h18m", 4680),
    ],
)
def test_zfs_duration_is_parsed(text: str, length: int):
    assert parse_duration(text) == length


@pytest.mark.parametrize("text", ["", "soon", "12", "1:2:3:4", "-00:00:01"])
def test_invalid_zfs_duration_is_a_parse_error(text: str):
    with pytest.raises(ParseError):
        parse_duration(text)


def test_scrub_and_resilver_are_described():
    when = datetime.fromisoformat("2026-11-21 08:08")
    running = Scan(
        "scrub", "running", when, percent=30.33, rate=18245222, seconds_left=16, repaired=0
    )
    assert running.description == "scrub running, 30.3 % done, 17.4 MiB/s, 16 s left, repaired 0 B"
    paused = Scan("scrub", "paused", when, percent=91.72, repaired=0)
    assert (
        paused.description
        == "scrub paused since 21 Nov 2026 08:08 host time at 91.7 % done, repaired 0 B"
    )
    done = Scan("resilver", "finished", when, seconds_taken=18, repaired=1024, errors=0)
    assert (
        done.description
        == "resilver done on 21 Nov 2026 08:08 host time, in 18 s, resilvered 1 KiB, 0 errors"
    )
    assert (
        Scan("scrub", "stopped", when).description
        == "scrub stopped on 21 Nov 2026 08:08 host time"
    )
    exact = Scan("scrub", "stopped", when.replace(tzinfo=UTC))
    assert exact.description == "scrub stopped on 21 Nov 2026 08:08 UTC"


def test_healthy_pool_has_no_findings():
    spares = Vdev("sde", "AVAIL", group="spares"), Vdev("sdf", "INUSE", group="spares")
    assert Pool("tank", "ONLINE", (Vdev("sda", "ONLINE"), *spares)).findings == []


def test_online_disk_with_checksum_errors_is_a_finding():
    (complaint,) = Pool("tank", "ONLINE", (Vdev("sda", "ONLINE", checksum_errors=29),)).findings
    assert complaint.startswith("sda of tank has 29 checksum errors although it is ONLINE")


def test_errors_of_a_group_are_a_finding_where_no_disk_has_any():
    answer = (
        "  pool: tank\n state: ONLINE\n"
        "status: One or more devices has experienced an unrecoverable error.  An\n"
        "\tattempt was made to correct the error.  Applications are unaffected.\n"
        "  scan: scrub repaired 0B in 01:24:38 with 1 errors on Sat May 12 19:45:12 2018\n"
        "config:\n\n"
        "\tNAME        STATE     READ WRITE CKSUM\n"
        "\ttank        ONLINE       0     0     2\n"
        "\t  raidz2-0  ONLINE       0     0     4\n"
        "\t    sda     ONLINE       0     0     0\n"
        "\t    sdb     ONLINE       0     0     0\n\n"
        "errors: No known data errors\n"
    )
    (pool,) = parse_pools(answer)
    (finding,) = pool.findings
    assert finding.startswith("raidz2-0 of tank has 4 checksum errors, and none of its disks has")
    assert pool.scans[0].description.endswith(", 1 error")


def test_unavailable_disk_of_an_online_pool_is_a_finding():
    (complaint,) = Pool("tank", "ONLINE", (Vdev("sda", "UNAVAIL", note="was sdb"),)).findings
    assert complaint == "tank is ONLINE: sda is UNAVAIL (was sdb)"


def test_finding_of_many_damaged_files_names_the_first_ten():
    files = tuple(f"/tank/{number}" for number in range(13))
    (complaint,) = Pool("tank", "ONLINE", error_count=13, damaged_files=files).findings
    assert complaint.startswith("tank has lost data in 13 places: /tank/0, ")
    assert complaint.endswith("/tank/9 and 3 more: restore it from a backup")


def test_stopped_resilver_is_a_finding():
    (complaint,) = Pool("tank", "ONLINE", scans=(Scan("resilver", "stopped"),)).findings
    assert "was stopped early" in complaint
