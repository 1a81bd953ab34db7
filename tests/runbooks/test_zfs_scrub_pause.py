from dataclasses import replace

import pytest
from pydantic import ValidationError

from runbooks import Refused
from runbooks.zfs_scrub_pause import PauseScrub
from tests.runbooks.nas import HOSTILE_POOLS, build_nas_fleet, storage_of

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
