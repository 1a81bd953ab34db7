"""Parser of `zpool status --json`, with documents as status_callback_json of OpenZFS has them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from connectors.zpool import Pool, Scan, ScanState, Vdev
from connectors.zpool_json import parse_document
from tests.connectors.understanding import is_understood

START, NOW = 1_795_000_000, 1_795_000_100
GIB = 1024**3


def disk(name: str, **more: object) -> dict[str, object]:
    counts = {"read_errors": 0, "write_errors": 0, "checksum_errors": 0, "slow_ios": 0}
    return (
        {"name": name, "vdev_type": "disk", "class": "normal", "state": "ONLINE"} | counts | more
    )


def document(scan: Mapping[str, object] | None = None, **more: object) -> dict[str, Any]:
    """Return a document of the mirror tank. more: further or other fields of the pool."""
    mirror = disk("mirror-0", vdev_type="mirror") | {
        "vdevs": {name: disk(name) for name in ("/dev/sda1", "/dev/sdb1")}
    }
    root = disk("tank", vdev_type="root") | {"vdevs": {"mirror-0": mirror}}
    pool: dict[str, object] = {
        "name": "tank",
        "state": "ONLINE",
        "pool_guid": 240630935905734902,
        "txg": 16597,
        "spa_version": 5000,
        "zpl_version": 5,
        "vdevs": {"tank": root},
        "error_count": 0,
    }
    version = {"command": "zpool status", "vers_major": 0, "vers_minor": 1}
    scans = {} if scan is None else {"scan_stats": {**SCAN, **scan}}
    return {"output_version": version, "time": NOW, "pools": {"tank": pool | scans | more}}


SCAN: Mapping[str, object] = {
    "function": "SCRUB",
    "state": "FINISHED",
    "start_time": START,
    "end_time": START + 40,
    "to_examine": 10 * GIB,
    "examined": 10 * GIB,
    "skipped": 0,
    "processed": 4096,
    "errors": 0,
    "bytes_per_scan": 0,
    "pass_start": START,
    "scrub_pause": 0,
    "scrub_spent_paused": 0,
    "issued_bytes_per_scan": 0,
    "issued": 10 * GIB,
}


def pool_of(document: Mapping[str, object]) -> Pool:
    understood = parse_document(json.dumps(document))
    assert understood is not None
    (pool,) = understood.pools
    return pool


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_zpool_status_json_is_parsed_with_its_disks():
    understood = parse_document(json.dumps(document()))
    assert understood is not None
    assert understood.host_time == at(NOW)
    (pool,) = understood.pools
    assert (pool.name, pool.state, pool.error_count, pool.scans) == ("tank", "ONLINE", 0, ())
    assert [vdev.name for vdev in pool.vdevs if vdev.is_leaf] == ["/dev/sda1", "/dev/sdb1"]
    assert pool.findings == []


@pytest.mark.parametrize(
    ("stats", "scan"),
    [
        ({}, Scan("scrub", "finished", at(START + 40), seconds_taken=40, repaired=4096, errors=0)),
        (
            {"state": "CANCELED"},
            Scan("scrub", "stopped", at(START + 40), seconds_taken=40, repaired=4096, errors=0),
        ),
        (
            {"function": "RESILVER", "errors": 7},
            Scan(
                "resilver", "finished", at(START + 40), seconds_taken=40, repaired=4096, errors=7
            ),
        ),
        (
            {"state": "SCANNING", "issued": 5 * GIB, "issued_bytes_per_scan": 5 * GIB},
            Scan(
                "scrub",
                "running",
                at(START),
                percent=50.0,
                rate=5 * GIB // 100,
                seconds_left=100,
                repaired=4096,
            ),
        ),
        (
            {
                "state": "SCANNING",
                "issued": 4 * GIB,
                "issued_bytes_per_scan": 2 * GIB,
                "skipped": 2 * GIB,
                "scrub_spent_paused": 50,
            },
            Scan(
                "scrub",
                "running",
                at(START),
                percent=50.0,
                rate=2 * GIB // 50,
                seconds_left=100,
                repaired=4096,
            ),
        ),
        (
            {"state": "SCANNING", "issued": GIB, "scrub_pause": START + 30},
            Scan("scrub", "paused", at(START + 30), percent=10.0, repaired=4096),
        ),
        (
            {"state": "SCANNING", "issued": 0, "to_examine": 0},
            Scan("scrub", "running", at(START), percent=0.0, rate=0, repaired=4096),
        ),
    ],
)
def test_last_scan_of_zpool_status_json_is_parsed(stats: Mapping[str, object], scan: Scan):
    assert pool_of(document(stats)).scans == (scan,)


def test_pool_that_was_never_scanned_has_no_scans_in_json():
    assert pool_of(document({"function": "NONE", "state": "NONE"})).scans == ()


def test_rebuild_in_zpool_status_json_is_parsed_as_a_resilver():
    rebuild = {"state": "ACTIVE", "start_time": START, "scanned": 1, "to_scan": 4, "rebuilt": 9}
    pool = pool_of(document({"rebuild_stats": {"mirror-0": rebuild}}))
    assert pool.last_scrub is not None
    assert pool.running_resilver == Scan(
        "resilver", "running", at(START), percent=25.0, repaired=9
    )


@pytest.mark.parametrize(("printed", "state"), [("COMPLETE", "finished"), ("CANCELED", "stopped")])
def test_ended_rebuild_in_zpool_status_json_is_parsed_as_in_the_text_form(
    printed: str, state: ScanState
):
    rebuild = {"state": printed, "start_time": START, "end_time": START + 9, "rebuilt": 7}
    stats = {"function": "NONE", "rebuild_stats": {"mirror-0": {**rebuild, "errors": 1}}}
    assert pool_of(document(stats)).scans == (
        Scan("resilver", state, at(START + 9), seconds_taken=9, repaired=7, errors=1),
    )
    later = {**stats, "function": "RESILVER", "end_time": START + 20}
    assert [scan.time for scan in pool_of(document(later)).scans] == [at(START + 20)]


def test_error_scrub_in_zpool_status_json_is_not_a_scrub():
    stats = {
        "function": "NONE",
        "state": "NONE",
        "err_scrub_state": "ERRORSCRUBBING",
        "err_scrub_start_time": START,
        "err_scrub_examined": 1,
        "err_scrub_to_examine": 3,
    }
    running = Scan("error scrub", "running", at(START), percent=25.0)
    assert pool_of(document(stats)).scans == (running,)
    paused = pool_of(document({**stats, "err_scrub_pause": START + 5})).scans
    assert [scan.state for scan in paused] == ["paused"]


@pytest.mark.parametrize(
    ("stats", "text"),
    [
        ({"function": "POLISH", "state": "SCANNING"}, "POLISH SCANNING"),
        ({"state": "PONDERING"}, "SCRUB PONDERING"),
    ],
)
def test_unknown_scan_in_json_is_an_odd_row_of_its_pool(stats: dict[str, Any], text: str):
    understood = parse_document(json.dumps(document(stats)))
    assert understood is not None
    (pool,) = understood.pools
    assert (pool.scans, pool.unknown_scans) == ((), (text,))
    assert not pool.was_never_scanned
    assert [row.text for row in understood.pools.odd] == [f"tank: {text}"]


def test_vdev_groups_states_and_notes_in_json_match_the_text_form():
    spare = {"name": "/dev/sdc1", "vdev_type": "disk", "state": "AVAIL"}
    log = disk("/dev/sdd1", state="CANT_OPEN", aux="OPEN_FAILED", write_errors=3)
    cache = disk("12345", state="CANT_OPEN", not_present=1, was="/dev/sde1")
    pool = pool_of(document(spares={"c": spare}, logs={"d": log}, l2cache={"e": cache}))
    assert pool.vdevs[-3:] == (
        Vdev("/dev/sdd1", "UNAVAIL", write_errors=3, note="open failed", group="logs"),
        Vdev("12345", "UNAVAIL", note="was /dev/sde1", group="cache"),
        Vdev("/dev/sdc1", "AVAIL", group="spares"),
    )


def test_damaged_files_in_zpool_status_json_are_parsed():
    pool = pool_of(document(error_count=2, errlist=["tank:<0x0>", "/tank/more"]))
    assert (pool.error_count, pool.damaged_files) == (2, ("tank:<0x0>", "/tank/more"))
    unnamed = pool_of(document(error_count=2, errlist="Permission denied"))
    assert (unnamed.error_count, unnamed.damaged_files) == (2, ())
    unknown = document()
    del unknown["pools"]["tank"]["error_count"]
    assert pool_of(unknown).error_count is None


def test_zpool_status_and_action_texts_are_put_on_one_line():
    pool = pool_of(document(status="One or\n\tmore.\n", action="Wait.\n"))
    assert (pool.status, pool.action) == ("One or more.", "Wait.")


def test_group_without_a_state_in_json_is_no_finding_and_a_disk_without_one_is():
    """OpenZFS 2.3 leaves out vdev_type and state of dRAID groups."""
    disks = {name: disk(name) for name in ("/dev/sda1", "/dev/sdb1")}
    group = {"name": "draid1:1d:2c:0s-0", "read_errors": 0, "vdevs": disks}
    root = disk("tank", vdev_type="root") | {"vdevs": {"draid1:1d:2c:0s-0": group}}
    assert pool_of(document(vdevs={"tank": root})).findings == []
    del disks["/dev/sdb1"]["state"]
    (finding,) = pool_of(document(vdevs={"tank": root})).findings
    assert finding == "tank is ONLINE: /dev/sdb1 is UNKNOWN"


def test_zpool_status_json_without_pools_is_parsed_as_empty():
    understood = parse_document(json.dumps(document() | {"pools": {}}))
    assert understood is not None
    assert understood.pools == ()


@pytest.mark.parametrize("answer", ["", "\n"])
def test_zpool_without_json_output_returns_nothing(answer: str):
    assert parse_document(answer) is None


def test_newer_zpool_status_json_is_left_to_the_text_form():
    newer = '{"output_version": {"command": "zpool status", "vers_major": 1}, "pools": []}'
    assert parse_document(newer) is None


@pytest.mark.parametrize(
    "answer",
    [
        "pool: tank",
        "{",
        "[]",
        "null",
        "{}",
        json.dumps({"output_version": {}}),
        json.dumps(document())[:-20],
        json.dumps(document() | {"pools": []}),
        json.dumps({key: value for key, value in document().items() if key != "time"}),
        json.dumps(document(state=None)),
        json.dumps(document(vdevs=[])),
        json.dumps(document({"state": "WONDERING"})),
        json.dumps(document({"processed": "3.43K"})),
        json.dumps(document(error_count="many")),
    ],
)
def test_invalid_zpool_status_json_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_document(answer))
