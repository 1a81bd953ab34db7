from dataclasses import replace

import pytest
from pydantic import ValidationError

from connectors import zfs
from connectors.errors import CommandError
from runbooks import Plan, Refused
from runbooks.zfs_scrub_stop import StopScrub
from tests.plans import work_of
from tests.runbooks.nas import HOSTILE_POOLS, nas, storage_of

STOP = StopScrub.model_validate({"host": "nas1", "pool": "tank"})


@pytest.mark.parametrize("name", ["2.1-running", "2.1-paused"])
def test_a_scrub_is_stopped_and_an_undo_starts_it_anew(name: str):
    plan = STOP.plan(STOP.read(nas(name).run_query))
    (step,) = plan.steps
    assert (str(step.do), str(step.undo)) == ("zpool scrub -s tank", "zpool scrub tank")
    assert "Undo starts the scrub from the beginning" in plan.notes[0]


def test_on_zfs_fuse_it_looks_before_it_stops():
    (step,) = STOP.plan(storage_of("fuse-running")).steps
    assert step.do == zfs.stop_scrub_on_fuse("tank")


def test_only_what_could_be_paused_is_advised_to_be():
    advised = {
        name: any("pause" in note for note in STOP.plan(storage_of(name)).notes)
        for name in ("2.1-running", "2.1-paused", "fuse-running")
    }
    assert advised == {"2.1-running": True, "2.1-paused": False, "fuse-running": False}


@pytest.mark.parametrize(
    "name", ["2.1-never", "2.1-finished", "2.1-canceled-spare", "fuse-stopped"]
)
def test_where_no_scrub_runs_nothing_is_done(name: str):
    assert STOP.plan(storage_of(name)) == Plan("no scrub of tank is running")


@pytest.mark.parametrize("name", ["2.1-resilvering", "fuse-resilvering"])
def test_a_resilver_is_never_stopped(name: str):
    with pytest.raises(Refused, match="must not be stopped"):
        STOP.plan(storage_of(name))


def test_a_pool_that_stands_still_takes_no_orders():
    storage = storage_of("2.1-running")
    (pool,) = storage.pools
    suspended = replace(storage, pools=(replace(pool, state="SUSPENDED"),))
    with pytest.raises(Refused, match="connect its disks"):
        STOP.plan(suspended)


def test_an_error_scrub_is_waited_for():
    storage = storage_of("2.1-running")
    (pool,) = storage.pools
    scan = replace(pool.scans[0], kind="error scrub")
    with pytest.raises(Refused, match="wait for it"):
        STOP.plan(replace(storage, pools=(replace(pool, scans=(scan,)),)))


def test_progress_does_not_make_a_plan_stale():
    plan = STOP.plan(storage_of("2.1-running"))
    assert work_of(plan) == work_of(STOP.plan(storage_of("2.1-repairing")))


def test_a_pool_that_is_not_there_is_an_error_that_names_the_others():
    absent = StopScrub.model_validate({"host": "nas1", "pool": "dozer"})
    with pytest.raises(CommandError, match="no pool dozer; its pools: tank"):
        absent.plan(storage_of("2.1-running"))


@pytest.mark.parametrize("pool", HOSTILE_POOLS)
def test_invalid_pool_is_refused_before_any_query(pool: object):
    with pytest.raises(ValidationError):
        StopScrub.model_validate({"host": "nas1", "pool": pool})
