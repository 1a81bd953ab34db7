from dataclasses import replace

import pytest
from pydantic import ValidationError

from runbooks import Refused
from runbooks.zfs_scrub_pause import PauseScrub
from tests.runbooks.nas import HOSTILE_POOLS, nas, storage_of

PAUSE = PauseScrub.model_validate({"host": "nas1", "pool": "tank"})


def test_a_scrub_is_paused_and_goes_on_by_the_undo():
    (step,) = PAUSE.plan(PAUSE.read(nas("2.1-running").run_query)).steps
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
def test_where_nothing_is_to_be_paused_nothing_is_done(name: str, because: str):
    plan = PAUSE.plan(storage_of(name))
    assert not plan.steps
    assert plan.current_state == because


@pytest.mark.parametrize("name", ["2.1-resilvering", "fuse-resilvering"])
def test_a_resilver_cannot_be_paused(name: str):
    with pytest.raises(Refused, match="which cannot be paused"):
        PAUSE.plan(storage_of(name))


def test_zfs_fuse_cannot_pause():
    with pytest.raises(Refused, match="zfs-fuse cannot pause a scrub: `zfs scrub stop`"):
        PAUSE.plan(storage_of("fuse-running"))


def test_a_pool_that_stands_still_takes_no_orders():
    storage = storage_of("2.1-running")
    (pool,) = storage.pools
    with pytest.raises(Refused, match="connect its disks"):
        PAUSE.plan(replace(storage, pools=(replace(pool, state="SUSPENDED"),)))


@pytest.mark.parametrize("pool", HOSTILE_POOLS)
def test_invalid_pool_is_refused_before_any_query(pool: object):
    with pytest.raises(ValidationError):
        PauseScrub.model_validate({"host": "nas1", "pool": pool})


def test_a_paused_scrub_goes_on_by_the_undo_and_one_that_ended_does_not():
    PAUSE.refuse_undo(storage_of("2.1-paused"))
    for name in ("2.1-finished", "2.1-never"):
        with pytest.raises(Refused, match="is not paused any more"):
            PAUSE.refuse_undo(storage_of(name))
