from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.hostile_values import HOSTILE_TIMES
from bot.model import request_form
from connectors import disk_write
from connectors.disk_write import DirectoryState, WriteResult
from runbooks import Clock, Plan, Refused
from runbooks.disk_write_test import DirectoryReading, MeasureDiskWrite
from tests.connectors.test_disk_write import NEVER
from tests.plans import list_work
from tests.scripted_fleet import ScriptedFleet

NOW = datetime(2026, 3, 1, 14, 30, tzinfo=UTC)
TRY = MeasureDiskWrite.model_validate(
    {"host": "nas1", "directory": "/srv", "since": "2026-03-01T14:30Z"}
)
CALM = DirectoryState(
    is_root_owned=True,
    size_bytes=100 * 2**30,
    free_bytes=50 * 2**30,
    filesystem="ext4",
    mount="/srv",
    host_time=NOW + timedelta(seconds=5),
    cpus=4,
    load=0.5,
    io_wait=1.2,
)
DONE = WriteResult("/srv", 64, NOW + timedelta(seconds=3), 0.4)


def plan(place: DirectoryState, lag: timedelta = timedelta()) -> Plan:
    """Return the plan for a host whose clock is *lag* behind Keyturn's."""
    return TRY.plan(DirectoryReading(place, Clock(place.host_time, place.host_time + lag)))


def test_disk_write_test_is_one_step_that_leaves_only_its_result():
    proposed = plan(CALM)
    (step,) = proposed.steps
    assert proposed.current_state == (
        "/srv is on /srv (ext4), which has 50.0 GiB free; load 0.5 on 4 CPUs"
    )
    assert 'dd bs=1M count="$2" iflag=fullblock conv=fdatasync' in str(step.do)
    assert str(step.do).endswith(" keyturn /srv 64")
    assert str(step.undo) == "rm -f -- /run/keyturn-disk-write-test"
    assert proposed.is_reversible


def test_disk_write_test_plans_no_steps_once_its_result_exists():
    assert plan(replace(CALM, last_result=DONE)) == Plan(
        "wrote 64 MiB to /srv in 0.40 s, 160 MiB/s, at 2026-03-01 14:30:03 UTC"
    )


def test_disk_write_result_is_accepted_when_the_test_made_the_host_busy():
    assert not plan(replace(CALM, last_result=DONE, load=9.0, io_wait=80.0)).steps


@pytest.mark.parametrize(
    "last",
    [
        replace(DONE, ended_at=NOW - timedelta(seconds=1)),
        replace(DONE, directory="/var"),
        replace(DONE, mib=32),
    ],
)
def test_disk_write_result_that_is_older_or_of_another_request_is_not_accepted(last: WriteResult):
    proposed = plan(replace(CALM, last_result=last))
    assert proposed.steps
    assert any(note.startswith("Last result: ") for note in proposed.notes)


def test_disk_write_plan_is_not_stale_when_load_and_free_space_move():
    later = replace(
        CALM, free_bytes=49 * 2**30, load=1.5, io_wait=3.0, host_time=NOW + timedelta(hours=1)
    )
    assert list_work(plan(later)) == list_work(plan(CALM))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (replace(CALM, load=4.0), "nas1 is busy .load 4 on 4 CPUs., and the test"),
        (replace(CALM, io_wait=20.0), "wait for its disks 20 % of the time"),
        (
            replace(CALM, free_bytes=2**30),
            "1.0 GiB free, and after writing 64 MiB, 5.0 GiB must remain free",
        ),
        (
            replace(CALM, size_bytes=4 * 2**30, free_bytes=2**30),
            "64 MiB, 1.0 GiB must remain free",
        ),
        (replace(CALM, is_root_owned=False), "choose a directory on the same disk"),
        (replace(CALM, filesystem="tmpfs"), "in memory and on no disk"),
        (replace(CALM, filesystem="nfs4"), "another host"),
        (replace(CALM, filesystem="squashfs"), "read-only"),
    ],
)
def test_disk_write_test_is_refused_on_a_busy_host_or_an_unsuitable_directory(
    state: DirectoryState, words: str
):
    with pytest.raises(Refused, match=words):
        plan(state)


@pytest.mark.parametrize("lag", [-3600, -1, 0, 1, 3600])
def test_disk_write_result_is_recognised_when_the_host_clock_is_wrong(lag: int):
    behind = timedelta(seconds=lag)
    ended, now = DONE.ended_at - behind, CALM.host_time - behind
    assert not plan(
        replace(CALM, host_time=now, last_result=replace(DONE, ended_at=ended)), behind
    ).steps
    earlier = replace(DONE, ended_at=NOW - timedelta(seconds=2) - behind)
    assert plan(replace(CALM, host_time=now, last_result=earlier), behind).steps


def test_disk_write_test_with_a_future_time_is_refused():
    with pytest.raises(Refused, match="in the future"):
        plan(replace(CALM, host_time=NOW - timedelta(seconds=7)))


def test_disk_write_plan_notes_a_kernel_without_pressure_information():
    notes = plan(replace(CALM, io_wait=None)).notes
    assert "This kernel does not show whether programs wait for disks." in notes


def test_disk_write_test_reads_its_directory_with_one_query():
    fleet = ScriptedFleet(hosts=["nas1"])
    trial = MeasureDiskWrite.model_validate({"host": "nas1", "directory": "/srv/data"})
    fleet.script("nas1", disk_write.query_directory("/srv/data").command, NEVER)
    assert trial.read(fleet.run_query).directory.mount == "/"


@pytest.mark.parametrize(
    "directory",
    [
        "",
        "/",
        "srv",
        "-x",
        "--help",
        "/srv/../etc",
        "/srv/.ssh",
        "/srv//x",
        "/srv/",
        "/srv;id",
        "/srv id",
        "/srv\n",
        "/srv\0",
        "/srv$(id)",
        "/srv`id`",
        "/srv'",
        '/srv"',
        "/srv\\",
        "/srv*",
        "/srv|id",
        "/srv>x",
        "/ｓrv",
        "/srv\u200b",
        "/" + "x" * 100,
        "/x" * 20,
        7,
        None,
        ["/srv"],
    ],
)
def test_disk_write_test_refuses_an_invalid_directory(directory: object):
    with pytest.raises(ValidationError):
        MeasureDiskWrite.model_validate({"host": "nas1", "directory": directory})


@pytest.mark.parametrize(
    "mib", [0, -1, 3, 1025, 10**9, "many", "64;id", "", None, 1.5, "0x40", "64\n", [64]]
)
def test_disk_write_test_refuses_an_invalid_size(mib: object):
    with pytest.raises(ValidationError):
        MeasureDiskWrite.model_validate({"host": "nas1", "directory": "/srv", "mib": mib})


@pytest.mark.parametrize("moment", HOSTILE_TIMES)
def test_disk_write_test_refuses_an_invalid_time(moment: object):
    with pytest.raises(ValidationError):
        MeasureDiskWrite.model_validate({"host": "nas1", "directory": "/srv", "since": moment})


def test_disk_write_test_is_parsed_as_its_usage_shows():
    assert (
        request_form.format_usage(MeasureDiskWrite)
        == "disk write test HOST DIRECTORY [mib=64] [since=]"
    )
    typed = request_form.parse_request(MeasureDiskWrite, ["nas1", "/srv", "128"])
    assert typed.model_dump()["mib"] == 128
