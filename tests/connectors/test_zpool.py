"""Sizes and times as ZFS writes them, and what is to be said of a pool."""

from datetime import UTC, datetime

import pytest

from connectors.errors import ParseError
from connectors.zpool import (
    Pool,
    Scan,
    Vdev,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


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
def test_a_size_is_understood(text: str, amount: int):
    assert parse_size(text) == amount


@pytest.mark.parametrize("text", ["", "-", "K", "1.2.3K", "12k", "1e9", "-1", " 1", "٣"])
def test_invalid_size_is_refused(text: str):
    with pytest.raises(ParseError):
        parse_size(text)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (15_872, "15.5 KiB"),
        (147 * 1024**2, "147 MiB"),
        (1024**3, "1 GiB"),
        (5 * 1024**8, "5120 ZiB"),
    ],
)
def test_a_size_is_written(amount: int, text: str):
    assert format_size(amount) == text


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
def test_a_length_of_time_is_understood(text: str, length: int):
    assert parse_duration(text) == length


@pytest.mark.parametrize("text", ["", "soon", "12", "1:2:3:4", "-00:00:01"])
def test_invalid_duration_is_refused(text: str):
    with pytest.raises(ParseError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "less than a minute"),
        (40, "40 s"),
        (4680, "1 h 18 min"),
        (86_400, "1 day"),
        (286_947, "3 days 7 h"),
    ],
)
def test_a_length_of_time_is_written(length: int, text: str):
    assert format_duration(length) == text


def test_a_scan_is_shown_in_words():
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


def test_a_sound_pool_needs_no_one():
    spares = Vdev("sde", "AVAIL", group="spares"), Vdev("sdf", "INUSE", group="spares")
    assert Pool("tank", "ONLINE", (Vdev("sda", "ONLINE"), *spares)).findings == []


def test_a_disk_that_counts_errors_is_named_although_its_state_is_well():
    (complaint,) = Pool("tank", "ONLINE", (Vdev("sda", "ONLINE", checksum_errors=29),)).findings
    assert complaint.startswith("sda of tank has 29 checksum errors although it is ONLINE")


def test_a_disk_is_missing_in_a_pool_that_calls_itself_sound():
    (complaint,) = Pool("tank", "ONLINE", (Vdev("sda", "UNAVAIL", note="was sdb"),)).findings
    assert complaint == "tank is ONLINE: sda is UNAVAIL (was sdb)"


def test_of_many_damaged_files_some_are_named():
    files = tuple(f"/tank/{number}" for number in range(13))
    (complaint,) = Pool("tank", "ONLINE", error_count=13, damaged_files=files).findings
    assert complaint.startswith("tank has lost data in 13 places: /tank/0, ")
    assert complaint.endswith("/tank/9 and 3 more: restore it from a backup")


def test_a_resilver_that_was_stopped_is_not_forgotten():
    (complaint,) = Pool("tank", "ONLINE", scans=(Scan("resilver", "stopped"),)).findings
    assert "was stopped early" in complaint
