from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import ValidationError

from connectors import zfs
from connectors.zfs import LoadAverage
from connectors.zfs_disks import query_layers
from connectors.zpool import Pool
from runbooks import Plan, Refused
from runbooks.zfs_scrub_start import ForceScrub, ScrubState, StartScrub
from tests.plans import list_work
from tests.runbooks.nas import HOSTILE_POOLS, build_nas_fleet, storage_of

TANK = {"host": "nas1", "pool": "tank"}
START = StartScrub.model_validate(TANK)
FORCE = ForceScrub.model_validate(TANK)
LOAD = LoadAverage(0.1, 0.2, 0.3)


def recorded_state(name: str, **pool: str) -> ScrubState:
    """Return the state of the recording *name*. pool: changed fields of its pool."""
    storage = storage_of(name)
    return ScrubState(replace(zfs.find_pool("tank", storage), **pool), storage, LOAD)


def aged(name: str, minutes: int) -> ScrubState:
    known = recorded_state(name)
    scrub = known.pool.last_scrub
    assert scrub is not None
    assert scrub.time is not None
    now = scrub.time + timedelta(minutes=minutes)
    return replace(known, storage=replace(known.storage, host_time=now))


def commands(plan: Plan) -> list[tuple[str, str]]:
    return [(str(step.do), str(step.undo)) for step in plan.steps]


@pytest.mark.parametrize("runbook", [START, FORCE])
def test_scrub_start_starts_a_scrub_and_undo_stops_it(runbook: StartScrub | ForceScrub):
    plan = runbook.plan(recorded_state("2.1-never"))
    assert commands(plan) == [("zpool scrub tank", "zpool scrub -s tank")]
    (step,) = plan.steps
    assert (step.before, step.after) == ("no scrub running", "scrub running")
    assert plan.current_state == "tank is ONLINE; never scrubbed"


def test_undo_of_a_scrub_start_on_zfs_fuse_checks_before_it_stops():
    (step,) = START.plan(recorded_state("fuse-never")).steps
    assert step.undo == zfs.stop_scrub_on_fuse("tank")


@pytest.mark.parametrize("name", ["2.1-running", "2.1-repairing", "fuse-running"])
def test_scrub_start_of_a_running_scrub_plans_no_steps(name: str):
    plan = START.plan(recorded_state(name))
    assert not plan.steps
    assert "is being scrubbed: scrub running" in plan.current_state


def test_scrub_start_resumes_a_paused_scrub_and_undo_pauses_it():
    plan = START.plan(recorded_state("2.1-paused"))
    assert commands(plan) == [("zpool scrub tank", "zpool scrub -p tank")]
    assert plan.steps[0].before == "scrub paused"


def test_scrub_start_plans_no_steps_after_a_recent_scrub():
    assert not START.plan(aged("2.1-finished", 59)).steps
    assert START.plan(aged("2.1-finished", 61)).steps
    weekly = StartScrub.model_validate(TANK | {"fresh": 10_080})
    assert not weekly.plan(aged("2.1-finished", 10_000)).steps


def test_scrub_start_is_verified_when_the_scrub_has_already_ended():
    assert START.plan(recorded_state("2.1-never")).steps
    assert not START.plan(aged("2.1-finished", 0)).steps


def test_scrub_start_starts_a_scrub_after_a_stopped_one():
    assert START.plan(aged("fuse-stopped", 0)).steps


@pytest.mark.parametrize("runbook", [START, FORCE])
@pytest.mark.parametrize("name", ["2.1-resilvering", "fuse-resilvering"])
def test_scrub_start_refuses_during_a_resilver(name: str, runbook: StartScrub | ForceScrub):
    with pytest.raises(Refused, match="busy with a resilver running"):
        runbook.plan(recorded_state(name))


@pytest.mark.parametrize("runbook", [START, FORCE])
@pytest.mark.parametrize("state", ["SUSPENDED", "UNAVAIL", "FAULTED"])
def test_scrub_start_refuses_a_suspended_or_faulted_pool(
    state: str, runbook: StartScrub | ForceScrub
):
    with pytest.raises(Refused, match=f"tank is {state}.*zfs clear"):
        runbook.plan(recorded_state("2.1-finished", state=state))


@pytest.mark.parametrize("name", ["2.1-offline", "2.1-label-missing", "fuse-imported"])
def test_scrub_of_a_degraded_pool_requires_force(name: str):
    with pytest.raises(Refused, match=r"tank is DEGRADED \(.*zfs scrub force"):
        START.model_copy(update={"fresh": 1}).plan(recorded_state(name))
    plan = FORCE.model_copy(update={"fresh": 1}).plan(recorded_state(name))
    assert [do for do, _ in commands(plan)] == ["zpool scrub tank"]
    assert any("Make a backup first" in note for note in plan.notes)


def test_scrub_on_a_busy_host_requires_force():
    busy = replace(recorded_state("2.1-never"), load=LoadAverage(1.0, 8.1, 20.0))
    with pytest.raises(Refused, match=r"the load of nas1 is 8\.1, above the limit of 8:"):
        START.plan(busy)
    assert START.plan(replace(busy, load=LoadAverage(20.0, 8.0, 20.0))).steps
    assert StartScrub.model_validate(TANK | {"max_load": "9"}).plan(busy).steps
    assert FORCE.plan(busy).steps


def test_scrub_on_disks_that_another_pool_keeps_busy_requires_force():
    other = replace(recorded_state("2.1-running").pool, name="other")
    beside = replace(recorded_state("2.1-never"), busy_neighbours=(other,))
    with pytest.raises(Refused, match="other is on the same disks and busy"):
        START.plan(beside)
    plan = FORCE.plan(beside)
    assert plan.steps
    assert any("both will be slow" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("name", "running"),
    [
        ("2.1-running", True),
        ("fuse-running", True),
        ("2.1-finished", False),
        ("fuse-stopped", False),
    ],
)
def test_scrub_start_reports_progress_until_the_scrub_ends(name: str, *, running: bool):
    progress = START.report_progress(recorded_state(name))
    assert progress.running is running
    assert progress.summary.startswith("tank: scrub ")
    assert progress.summary != "tank: "


def test_scrub_start_reports_findings_of_an_ended_scrub():
    progress = START.report_progress(recorded_state("2.1-lost"))
    assert not progress.healthy
    assert progress.findings


def test_scrub_start_notes_the_load_and_the_duration_of_the_last_scrub():
    notes = START.plan(aged("2.1-finished", 100)).notes
    assert notes[0].endswith("slows down programs meanwhile; the last one took 2 s.")
    assert "`zfs scrub status nas1 tank`" in notes[1]
    assert START.plan(recorded_state("2.1-never")).notes[0].endswith("meanwhile.")


def test_scrub_start_notes_checksum_errors_before_it_starts():
    worn = aged("2.1-repaired", 100)
    assert any("29 checksum errors" in note for note in START.plan(worn).notes)


def test_scrub_start_plan_is_not_stale_when_the_load_moves():
    plan = START.plan(recorded_state("2.1-never"))
    assert list_work(plan) == list_work(
        START.plan(replace(recorded_state("2.1-never"), load=LoadAverage(3, 2, 1)))
    )
    assert list_work(plan) != list_work(START.plan(recorded_state("2.1-paused")))


def _two_pools(*, same_disk: bool) -> ScrubState:
    running = "  scan: scrub in progress since Sat Nov 21 08:08:04 2026\nconfig:"
    fleet = build_nas_fleet("2.1-never")
    fleet.script(
        "nas1", zfs.query_status().command, _pool("tank", "sdb1") + _pool("other", "sdc1", running)
    )
    fleet.script("nas1", query_layers(["/dev/sdb1"]).command, "/dev/sdb1\n/dev/sdb\n")
    disk = "/dev/sdb" if same_disk else "/dev/sdc"
    fleet.script("nas1", query_layers(["/dev/sdc1"]).command, f"/dev/sdc1\n{disk}\n")
    return START.read(fleet.run_query)


def _pool(name: str, device: str, scan: str = "config:") -> str:
    return (
        f"  pool: {name}\n state: ONLINE\n{scan}\n\n"
        "\tNAME        STATE     READ WRITE CKSUM\n"
        f"\t{name}        ONLINE       0     0     0\n"
        f"\t  /dev/{device}  ONLINE       0     0     0\n\n"
        "errors: No known data errors\n\n"
    )


def test_scrub_start_finds_busy_pools_on_the_same_disks():
    assert [pool.name for pool in _two_pools(same_disk=True).busy_neighbours] == ["other"]
    assert _two_pools(same_disk=False).busy_neighbours == []


def test_scrub_start_queries_disks_only_when_another_pool_is_busy():
    fleet = build_nas_fleet("2.1-several")
    assert START.read(fleet.run_query).busy_neighbours == []
    assert not any("lsblk" in words for _, words in fleet.asked)


def test_scrub_start_refuses_during_an_error_scrub():
    pool = recorded_state("2.1-never").pool
    running = recorded_state("2.1-running").pool.scans[0]
    busy = Pool(pool.name, pool.state, pool.vdevs, (replace(running, kind="error scrub"),))
    with pytest.raises(Refused, match="try again when it has"):
        START.plan(replace(recorded_state("2.1-never"), pool=busy))


@pytest.mark.parametrize("runbook", [StartScrub, ForceScrub])
@pytest.mark.parametrize("pool", HOSTILE_POOLS)
def test_scrub_start_refuses_an_invalid_pool_before_any_query(
    runbook: type[StartScrub | ForceScrub], pool: object
):
    with pytest.raises(ValidationError):
        runbook.model_validate({"host": "nas1", "pool": pool})


@pytest.mark.parametrize(
    "limit", ["0", "-1", "nan", "inf", "1e9", "", "ten", "8;reboot", "8 9", "0x8", None, [8]]
)
def test_scrub_start_refuses_an_invalid_load_limit(limit: object):
    with pytest.raises(ValidationError):
        StartScrub.model_validate(TANK | {"max_load": limit})


@pytest.mark.parametrize(
    "minutes", ["0", "-1", "1.5", "100001", "", "an hour", "60;", "6 0", "nan", None, [60], "1e3"]
)
def test_scrub_start_refuses_an_invalid_number_of_minutes(minutes: object):
    with pytest.raises(ValidationError):
        StartScrub.model_validate(TANK | {"fresh": minutes})


@pytest.mark.parametrize("name", ["2.1-running", "2.1-repairing", "fuse-running"])
def test_undo_of_a_running_scrub_is_allowed(name: str):
    START.refuse_undo(recorded_state(name))


@pytest.mark.parametrize("name", ["2.1-finished", "2.1-never", "2.1-resilvering"])
def test_undo_of_a_scrub_is_refused_once_it_has_ended(name: str):
    with pytest.raises(Refused, match="the scrub of tank is not running any more"):
        START.refuse_undo(recorded_state(name))


def test_undo_of_a_scrub_is_verified_on_a_busy_host():
    busy = replace(recorded_state("2.1-never"), load=LoadAverage(20.0, 20.0, 20.0))
    with pytest.raises(Refused, match="above the limit of 8"):
        START.plan(busy)
    assert commands(START.plan_anyway(busy)) == [("zpool scrub tank", "zpool scrub -s tank")]
