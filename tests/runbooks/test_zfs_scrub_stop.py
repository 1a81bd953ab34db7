from dataclasses import replace

import pytest
from pydantic import ValidationError

from connectors import zfs
from connectors.errors import CommandError
from runbooks import Plan, Refused
from runbooks.zfs_scrub_stop import PauseScrub, StopScrub
from tests.plans import list_work
from tests.runbooks.nas import HOSTILE_POOLS, build_nas_fleet, storage_of

STOP = StopScrub.model_validate({"host": "nas1", "pool": "tank"})


@pytest.mark.parametrize("name", ["2.1-running", "2.1-paused"])
def test_scrub_stop_stops_a_scrub_and_undo_restarts_it(name: str):
    plan = STOP.plan(STOP.read(build_nas_fleet(name).run_query))
    (step,) = plan.steps
    assert (str(step.do), str(step.undo)) == ("zpool scrub -s tank", "zpool scrub tank")
    assert "Undo starts the scrub from the beginning" in plan.notes[0]


def test_scrub_stop_on_zfs_fuse_checks_before_it_stops():
    (step,) = STOP.plan(storage_of("fuse-running")).steps
    assert step.do == zfs.stop_scrub_on_fuse("tank")


def test_scrub_stop_advises_a_pause_only_where_it_is_possible():
    advised = {
        name: any("pause" in note for note in STOP.plan(storage_of(name)).notes)
        for name in ("2.1-running", "2.1-paused", "fuse-running")
    }
    assert advised == {"2.1-running": True, "2.1-paused": False, "fuse-running": False}


@pytest.mark.parametrize(
    "name", ["2.1-never", "2.1-finished", "2.1-canceled-spare", "fuse-stopped"]
)
def test_scrub_stop_without_a_running_scrub_plans_no_steps(name: str):
    assert STOP.plan(storage_of(name)) == Plan("no scrub of tank is running")


@pytest.mark.parametrize("name", ["2.1-resilvering", "fuse-resilvering"])
def test_scrub_stop_refuses_a_resilver(name: str):
    with pytest.raises(Refused, match="must not be stopped"):
        STOP.plan(storage_of(name))


def test_scrub_stop_refuses_a_suspended_pool():
    storage = storage_of("2.1-running")
    (pool,) = storage.pools
    suspended = replace(storage, pools=(replace(pool, state="SUSPENDED"),))
    with pytest.raises(Refused, match="connect its disks"):
        STOP.plan(suspended)


def test_scrub_stop_refuses_during_an_error_scrub():
    storage = storage_of("2.1-running")
    (pool,) = storage.pools
    scan = replace(pool.scans[0], kind="error scrub")
    with pytest.raises(Refused, match="wait for it"):
        STOP.plan(replace(storage, pools=(replace(pool, scans=(scan,)),)))


def test_scrub_stop_plan_is_not_stale_when_progress_moves():
    plan = STOP.plan(storage_of("2.1-running"))
    assert list_work(plan) == list_work(STOP.plan(storage_of("2.1-repairing")))


def test_scrub_stop_reports_a_missing_pool_with_the_pools():
    absent = StopScrub.model_validate({"host": "nas1", "pool": "dozer"})
    with pytest.raises(CommandError, match="no pool dozer; its pools: tank"):
        absent.plan(storage_of("2.1-running"))


@pytest.mark.parametrize("pool", HOSTILE_POOLS)
def test_scrub_stop_refuses_an_invalid_pool_before_any_query(pool: object):
    with pytest.raises(ValidationError):
        StopScrub.model_validate({"host": "nas1", "pool": pool})


PAUSE = PauseScrub.model_validate({"host": "nas1", "pool": "tank"})


def test_scrub_pause_pauses_a_scrub_and_undo_resumes_it():
    (step,) = PAUSE.plan(PAUSE.read(build_nas_fleet("2.1-running").run_query)).steps
    assert (str(step.do), str(step.undo)) == ("zpool scrub -p tank", "zpool scrub tank")
    assert (step.before, step.after) == ("scrub running", "scrub paused")


@pytest.mark.parametrize(
    ("name", "because"),
    [
        (
            "2.1-paused",
            "tank: scrub paused since 21 Nov 2026 08:08 host time at 91.7 % done, repaired 0 B",
        ),
        ("2.1-finished", "no scrub of tank is running"),
        ("2.1-never", "no scrub of tank is running"),
        ("fuse-never", "no scrub of tank is running"),
    ],
)
def test_scrub_pause_without_a_running_scrub_plans_no_steps(name: str, because: str):
    plan = PAUSE.plan(storage_of(name))
    assert not plan.steps
    assert plan.current_state == because


@pytest.mark.parametrize("name", ["2.1-resilvering", "fuse-resilvering"])
def test_scrub_pause_refuses_a_resilver(name: str):
    with pytest.raises(Refused, match="which cannot be paused"):
        PAUSE.plan(storage_of(name))


def test_scrub_pause_is_refused_on_zfs_fuse():
    with pytest.raises(Refused, match="zfs-fuse cannot pause a scrub: `zfs scrub stop`"):
        PAUSE.plan(storage_of("fuse-running"))


def test_scrub_pause_refuses_a_suspended_pool():
    storage = storage_of("2.1-running")
    (pool,) = storage.pools
    with pytest.raises(Refused, match="connect its disks"):
        PAUSE.plan(replace(storage, pools=(replace(pool, state="SUSPENDED"),)))


@pytest.mark.parametrize("pool", HOSTILE_POOLS)
def test_scrub_pause_refuses_an_invalid_pool_before_any_query(pool: object):
    with pytest.raises(ValidationError):
        PauseScrub.model_validate({"host": "nas1", "pool": pool})


def test_undo_of_a_scrub_pause_is_refused_once_the_scrub_has_ended():
    PAUSE.refuse_undo(storage_of("2.1-paused"))
    for name in ("2.1-finished", "2.1-never"):
        with pytest.raises(Refused, match="is not paused any more"):
            PAUSE.refuse_undo(storage_of(name))
